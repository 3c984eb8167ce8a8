"""UpdateFeatures on the wire, and the features in ApiVersions (B4, KIP-584)."""

from typing import Any

import immutables
import pytest

from quorate.broker.kafka.admin import kafka_features
from quorate.common.types import MetadataOffset
from quorate.metadata_log.features import (
    CONSUMER_GROUPS,
    NEWEST_INTER_BROKER_PROTOCOL,
    NEWEST_METADATA_VERSION,
    SHARE_GROUPS,
)
from quorate.metadata_log.image import Image
from quorate_proto.v1 import errors_pb2
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeBrokerInside
from tests.unit.kafka.conftest import Ask

UPDATE_FEATURES, API_VERSIONS = 57, 18


def update(feature: str, level: int, *, downgrade: bool = False) -> dict[str, Any]:
    return {
        "feature": feature,
        "max_version_level": level,
        "allow_downgrade": downgrade,
        "upgrade_type": 2 if downgrade else 1,
    }


def asking(*wanted: dict[str, Any], validate_only: bool = False) -> dict[str, Any]:
    return {"timeout": 1234, "feature_updates": [*wanted], "validate_only": validate_only}


def forwarded(inside: FakeBrokerInside) -> list[list[tuple[str, int, bool]]]:
    """What the controller was asked for, by request."""
    return [
        [(one.name, one.level, one.allow_downgrade) for one in request.updates]
        for request in inside.forwarder.features
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_b4_a_kafka_client_raises_levels_through_any_broker(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    wanted = [
        update("metadata.version", 14),
        update("inter_broker_protocol", 1, downgrade=True),
        update("streams.version", 1),
    ]
    response = await ask(UPDATE_FEATURES, version, asking(*wanted))
    assert response.error_code == errors_pb2.NONE
    assert [(one.feature, one.error_code) for one in response.results] == [
        ("metadata.version", 0),
        ("inter_broker_protocol", 0),
        ("streams.version", errors_pb2.FEATURE_UPDATE_FAILED),
    ]
    assert "Kafka Streams" in response.results[2].error_message
    assert forwarded(inside) == [
        [("metadata_version", 3, False), ("inter_broker_protocol", 1, True)]
    ]
    assert inside.forwarder.features[0].context.timeout_ms == 1234


async def test_kip_1022_nothing_is_changed_if_one_feature_is_refused(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    wanted = asking(update("metadata.version", 30), update("streams.version", 1))
    response = await ask(UPDATE_FEATURES, 2, wanted)
    assert response.error_code == errors_pb2.FEATURE_UPDATE_FAILED
    assert "Kafka Streams" in response.error_message
    assert [request.validate_only for request in inside.forwarder.features] == [True]


async def test_kip_1022_all_features_are_changed_after_all_were_checked(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    wanted = asking(update("metadata.version", 30), update("kraft.version", 1))
    response = await ask(UPDATE_FEATURES, 2, wanted)
    assert (response.error_code, response.error_message) == (0, None)
    assert forwarded(inside) == [[("metadata_version", NEWEST_METADATA_VERSION, False)]] * 2
    assert [request.validate_only for request in inside.forwarder.features] == [True, False]


async def test_kip_1022_what_the_controller_refuses_stops_the_others(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.forwarder.refused_features = {"inter_broker_protocol"}
    wanted = asking(update("inter_broker_protocol", 3), update("metadata.version", 30))
    response = await ask(UPDATE_FEATURES, 2, wanted)
    assert response.error_code == errors_pb2.FEATURE_UPDATE_FAILED
    assert "not understood" in response.error_message
    assert [request.validate_only for request in inside.forwarder.features] == [True]


@pytest.mark.parametrize(
    ("feature", "level", "why"),
    [
        ("inter_broker_protocol", 0, "cannot be removed"),
        ("kraft.version", 0, "always at level 1"),
        ("metadata.version", 31, "30 (4.3-IV0)"),
        ("metadata.version", 6, "from 7 (3.3-IV3)"),
        ("nonsense", 1, "are known"),
    ],
)
async def test_b4_levels_that_there_are_not_are_refused(
    inside: FakeBrokerInside, ask: Ask, feature: str, level: int, why: str
) -> None:
    values = asking(update(feature, level, downgrade=True), validate_only=True)
    response = await ask(UPDATE_FEATURES, 1, values)
    assert response.results[0].error_code == errors_pb2.FEATURE_UPDATE_FAILED
    assert why in response.results[0].error_message
    assert forwarded(inside) == [[]]


async def test_what_is_not_here_can_be_removed(inside: FakeBrokerInside, ask: Ask) -> None:
    values = asking(update("streams.version", 0, downgrade=True))
    assert (await ask(UPDATE_FEATURES, 2, values)).error_code == 0


@pytest.mark.parametrize("level", range(1, NEWEST_METADATA_VERSION + 1))
def test_every_level_of_metadata_has_one_of_kafka_of_its_own(level: int) -> None:
    image = Image(features=immutables.Map({"metadata_version": level}))
    shown = {one["name"]: one["max_version_level"] for one in kafka_features.finalized(image)}
    own = kafka_features.own_level("metadata.version", shown["metadata.version"])
    assert own == ("metadata_version", level)


def test_new_kinds_of_groups_are_in_force_as_level_1_of_kafkas_features() -> None:
    level = max(CONSUMER_GROUPS, SHARE_GROUPS)
    image = Image(features=immutables.Map({"inter_broker_protocol": level}))
    shown = {one["name"]: one["max_version_level"] for one in kafka_features.finalized(image)}
    assert (shown["group.version"], shown["share.version"]) == (1, 1)


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_b4_clients_are_told_what_is_understood_and_what_is_in_force(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    features = immutables.Map({"inter_broker_protocol": 1, "metadata_version": 5})
    image = Image(offset=MetadataOffset(77), features=features)
    assert isinstance(inside.services.images, ShownImage)
    inside.services.images.show(image)
    values = {"client_software_name": "x", "client_software_version": "1"}
    response = await ask(API_VERSIONS, version, values)
    if version < 3:
        assert not hasattr(response, "finalized_features")
        return
    assert response.finalized_features_epoch == 77
    assert {
        one.name: (one.min_version_level, one.max_version_level)
        for one in response.finalized_features
    } == {
        "inter_broker_protocol": (1, 1),
        "metadata.version": (25, 25),
        "kraft.version": (1, 1),
    }, "group.version and share.version are not where a broker may not know such groups"
    supported = {
        one.name: (one.min_version, one.max_version) for one in response.supported_features
    }
    assert supported["metadata.version"] == (7, 30)
    assert supported["inter_broker_protocol"] == (1, NEWEST_INTER_BROKER_PROTOCOL)
    assert supported["kraft.version"] == (1, 1)
    least = 0 if version >= 4 else 1
    assert supported["transaction.version"] == (least, 2), "version 3 cannot have a level 0"
