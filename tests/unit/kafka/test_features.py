"""UpdateFeatures on the wire, and the features in ApiVersions (B4, KIP-584)."""

from typing import Any

import immutables
import pytest

from quorate.common.types import MetadataOffset
from quorate.metadata_log.features import FEATURES
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


@pytest.mark.parametrize("version", [0, 1])
async def test_b4_a_kafka_client_raises_levels_through_any_broker(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    wanted = [update("one", 2), update("other", 1, downgrade=True), update("far", 9)]
    values = {"timeout": 1234, "feature_updates": wanted, "validate_only": False}
    response = await ask(UPDATE_FEATURES, version, values)
    assert response.error_code == errors_pb2.NONE
    assert [(one.feature, one.error_code) for one in response.results] == [
        ("one", 0),
        ("other", 0),
        ("far", errors_pb2.FEATURE_UPDATE_FAILED),
    ]
    assert response.results[2].error_message == "not understood"
    (request,) = inside.forwarder.features
    assert [(one.name, one.level, one.allow_downgrade) for one in request.updates] == [
        ("one", 2, False),
        ("other", 1, True),
        ("far", 9, False),
    ]
    assert request.context.timeout_ms == 1234


async def test_b4_a_feature_cannot_be_removed(inside: FakeBrokerInside, ask: Ask) -> None:
    values = {"timeout": 1, "feature_updates": [update("one", 0)], "validate_only": True}
    response = await ask(UPDATE_FEATURES, 1, values)
    assert response.results[0].error_code == errors_pb2.INVALID_REQUEST
    (request,) = inside.forwarder.features
    assert not request.updates
    assert request.validate_only


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_b4_clients_are_told_what_is_understood_and_what_is_in_force(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    features = immutables.Map({"inter_broker_protocol": 1, "transaction.version": 0})
    image = Image(offset=MetadataOffset(77), features=features)
    assert isinstance(inside.services.images, ShownImage)
    inside.services.images.show(image)
    values = {"client_software_name": "x", "client_software_version": "1"}
    response = await ask(API_VERSIONS, version, values)
    if version < 3:
        assert not hasattr(response, "finalized_features")
        return
    assert response.finalized_features_epoch == 77
    (level,) = response.finalized_features
    assert (level.name, level.min_version_level, level.max_version_level) == (
        "inter_broker_protocol",
        1,
        1,
    )
    assert {
        one.name: (one.min_version, one.max_version) for one in response.supported_features
    } == {name: (feature.least, feature.newest) for name, feature in FEATURES.items()}
