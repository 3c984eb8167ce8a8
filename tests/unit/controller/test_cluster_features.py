"""Feature levels in a whole cluster: where it begins, and both passes of an upgrade (B4)."""

import msgspec
import pytest

from quorate.broker.changes.table import DELETE_TOPICS, UPDATE_FEATURES
from quorate.broker.controller.channels.control_transport import ControlKind
from quorate.metadata_log.features import (
    LOGIN_PROTECTION,
    NEWEST_INTER_BROKER_PROTOCOL,
    NEWEST_METADATA_VERSION,
)
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL, METADATA_VERSION
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.waiting import async_wait_until
from tests.unit.controller.cluster import Cluster

LEVEL_1 = {"inter.broker.protocol.version": 1}


def update(
    name: str = INTER_BROKER_PROTOCOL, level: int = 0, *, allow_downgrade: bool = False
) -> admin_pb2.FeatureUpdate:
    return admin_pb2.FeatureUpdate(name=name, level=level, allow_downgrade=allow_downgrade)


async def asked(
    cluster: Cluster, *updates: admin_pb2.FeatureUpdate, validate_only: bool = False
) -> list[admin_pb2.FeatureResult]:
    request = admin_pb2.UpdateFeaturesRequest(updates=updates, validate_only=validate_only)
    answer = await cluster.active.perform(UPDATE_FEATURES, request)
    assert answer.error_code == errors_pb2.NONE
    return list(answer.results)


def versions(cluster: Cluster) -> set[tuple[ControlKind, int]]:
    return {(one.kind, one.request.header.version) for one in cluster.sent}


async def test_b4_a_new_cluster_begins_at_the_newest_level(cluster: Cluster) -> None:
    assert cluster.image.features[INTER_BROKER_PROTOCOL] == NEWEST_INTER_BROKER_PROTOCOL
    await cluster.create_topic("orders", (1, 2, 3))
    assert versions(cluster) == {
        (ControlKind.LEADER_AND_ISR, 6),  # INIT.
        (ControlKind.LEADER_AND_ISR, 5),
        (ControlKind.UPDATE_METADATA, 8),
    }


async def test_b4_both_passes_of_an_upgrade() -> None:
    """Brokers of level 1; then each restarts and understands 2; then the level is raised."""
    cluster = Cluster(**LEVEL_1)
    await cluster.start_brokers(1, 2, 3)
    assert cluster.image.features[INTER_BROKER_PROTOCOL] == 1
    await cluster.create_topic("orders", (1, 2, 3))
    assert (await cluster.active.perform(DELETE_TOPICS, _deletion("orders"))).error_code == 0
    assert versions(cluster) == {
        (ControlKind.LEADER_AND_ISR, 4),
        (ControlKind.STOP_REPLICA, 3),
        (ControlKind.UPDATE_METADATA, 6),
    }
    assert all(
        one.request.header.broker_epoch == cluster.brokers[one.to].epoch for one in cluster.sent
    )
    cluster.configure()
    for broker_id in (1, 2):
        await cluster.bounce(broker_id)
        await cluster.at_rest()
    (refused,) = await asked(cluster, update(level=2))
    assert refused.error_code == errors_pb2.FEATURE_UPDATE_FAILED
    assert "broker 3 (1 at most)" in refused.error_message
    await cluster.bounce(3)
    await cluster.at_rest()
    assert cluster.image.inter_broker_protocol == 1, "nothing changes by itself"
    cluster.sent.clear()
    (raised,) = await asked(cluster, update(level=2))
    assert (raised.error_code, raised.level) == (errors_pb2.NONE, 2)
    await cluster.create_topic("more", (1, 2, 3))
    assert versions(cluster) == {
        (ControlKind.LEADER_AND_ISR, 5),
        (ControlKind.UPDATE_METADATA, 7),
    }
    assert all("more" in one.cache.topics for one in cluster.brokers.values())
    await cluster.stop()


def _deletion(*names: str) -> admin_pb2.DeleteTopicsRequest:
    return admin_pb2.DeleteTopicsRequest(names=names)


async def test_b4_going_back_must_be_meant(cluster: Cluster) -> None:
    (refused,) = await asked(cluster, update(level=1))
    assert refused.error_code == errors_pb2.FEATURE_UPDATE_FAILED
    assert "quorate features downgrade --feature inter_broker_protocol" in refused.error_message
    (lowered,) = await asked(cluster, update(level=1, allow_downgrade=True))
    assert lowered.error_code == errors_pb2.NONE
    assert cluster.image.inter_broker_protocol == 1
    cluster.sent.clear()
    await cluster.create_topic("orders", (1, 2, 3))
    assert (ControlKind.LEADER_AND_ISR, 4) in versions(cluster)
    assert all("orders" in one.cache.topics for one in cluster.brokers.values())


async def test_b4_a_broker_that_may_not_use_the_level_does_not_join(cluster: Cluster) -> None:
    from quorate.broker.control.broker_registrar import RegistrationRefused

    cluster.configure(**LEVEL_1)
    with pytest.raises(RegistrationRefused, match="inter_broker_protocol is at level 3"):
        await cluster.start_broker(4)
    del cluster.brokers[4]


async def test_b4_records_wait_for_the_last_voter_that_cannot_read_them(cluster: Cluster) -> None:
    cluster.quorum.metadata_version_max = NEWEST_METADATA_VERSION - 1
    (refused,) = await asked(cluster, update(METADATA_VERSION, NEWEST_METADATA_VERSION))
    assert "not understood by all voters" in refused.error_message
    cluster.quorum.metadata_version_max = NEWEST_METADATA_VERSION
    (same,) = await asked(cluster, update(METADATA_VERSION))
    assert (same.error_code, same.level) == (errors_pb2.NONE, NEWEST_METADATA_VERSION)


async def test_b4_each_feature_stands_alone_and_a_check_changes_nothing(cluster: Cluster) -> None:
    unknown, known = await asked(
        cluster,
        update("time_travel", 1),
        update(level=1, allow_downgrade=True),
        validate_only=True,
    )
    assert unknown.error_code == errors_pb2.FEATURE_UPDATE_FAILED
    assert (
        "inter_broker_protocol, metadata_version, transaction.version are known"
        in unknown.error_message
    )
    assert (known.error_code, known.level) == (errors_pb2.NONE, 1)
    assert cluster.image.inter_broker_protocol == NEWEST_INTER_BROKER_PROTOCOL
    (beyond,) = await asked(cluster, update(level=99))
    assert beyond.error_code == errors_pb2.FEATURE_UPDATE_FAILED
    assert "levels up to 3" in beyond.error_message


async def test_b4_without_a_quorum_the_outcome_is_said_to_be_unknown(cluster: Cluster) -> None:
    cluster.quorum.available = False
    (result,) = await asked(cluster, update(METADATA_VERSION))
    assert result.error_code == errors_pb2.REQUEST_TIMED_OUT
    cluster.quorum.available = True


async def test_all_controllers_leave_the_key_of_the_first_one_in_force(cluster: Cluster) -> None:
    key = cluster.image.scram_decoy_key
    assert len(key) == 32
    await cluster.kill(1)
    await async_wait_until(lambda: cluster.controller is not None, "another controller")
    await cluster.create_topic("orders", (2, 3))
    assert cluster.image.scram_decoy_key == key


async def test_b4_the_key_for_decoys_waits_for_the_level_that_has_it() -> None:
    cluster = Cluster()
    await cluster.start_brokers(1)
    older = cluster.image.features.set(METADATA_VERSION, LOGIN_PROTECTION - 1)
    image = msgspec.structs.replace(cluster.image, features=older, scram_decoy_key=b"")
    cluster.quorum.image = cluster.brokers[1].follower.image = image
    await cluster.create_topic("orders", (1,))
    assert cluster.image.scram_decoy_key == b""
    await asked(cluster, update(METADATA_VERSION, LOGIN_PROTECTION))
    await async_wait_until(lambda: len(cluster.image.scram_decoy_key) == 32, "a key")
    await cluster.stop()
