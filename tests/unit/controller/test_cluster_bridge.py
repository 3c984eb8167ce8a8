"""Inter-broker protocol 1: whoever is asked writes by itself, and nothing is lost (F6)."""

import asyncio

import pytest

from quorate.broker.changes.table import INCREMENTAL_ALTER_CONFIGS
from quorate.broker.controller.bridge import ATTEMPTS_MAX, Bridge, BridgeWriter, ConcurrentChange
from quorate.metadata_log.image import INTER_BROKER_PROTOCOL
from quorate.metadata_log.records import (
    ChangeNote,
    ConfigSet,
    ControllerEpochIs,
    FeatureLevel,
    Operation,
)
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.unit.controller.cluster import Cluster


def setting(key: str, value: str, who: str = "ann") -> admin_pb2.IncrementalAlterConfigsRequest:
    change = admin_pb2.ConfigChange(entity_type="topic", entity_name="t", values={key: value})
    context = admin_pb2.RequestContext(principal_name=f"User:{who}", timeout_ms=5_000)
    return admin_pb2.IncrementalAlterConfigsRequest(context=context, changes=[change])


async def at_level_1(cluster: Cluster) -> None:
    await cluster.create_topic("t", (1, 2))
    raise_to(cluster, 1)
    await cluster.at_rest()


def raise_to(cluster: Cluster, level: int) -> None:
    record = FeatureLevel(name=INTER_BROKER_PROTOCOL, level=level)
    epoch = ControllerEpochIs(controller_epoch=cluster.image.controller_epoch)
    assert cluster.quorum.write(Operation(records=(record,), conditions=(epoch,))).ok


def bridge_of(cluster: Cluster, broker_id: int) -> Bridge:
    return cluster.brokers[broker_id].bridge


async def ask(bridge: Bridge, request: admin_pb2.IncrementalAlterConfigsRequest) -> list[int]:
    answer = await bridge.perform(INCREMENTAL_ALTER_CONFIGS, request)
    return [answer.error_code, *(one.error_code for one in answer.results)]


async def test_f6_the_broker_that_is_asked_writes_and_notes_who_asked(cluster: Cluster) -> None:
    await at_level_1(cluster)
    assert await ask(bridge_of(cluster, 2), setting("min.insync.replicas", "2")) == [0, 0]
    assert cluster.image.config("topic", "t")["min.insync.replicas"] == "2"
    (operation,) = (
        operation
        for _, transaction in cluster.quorum.log
        for operation in transaction.operations
        if any(isinstance(record, ConfigSet) for record in operation.records)
    )
    assert not any(isinstance(one, ControllerEpochIs) for one in operation.conditions)
    assert [one.principal for one in operation.records if isinstance(one, ChangeNote)] == [
        "User:ann"
    ]
    (entry,) = cluster.brokers[2].audited
    assert entry["controller_epoch"] == 0, "no controller had a part in it"
    assert entry["metadata_offset"] == cluster.image.offset


async def test_f6_the_controllers_broker_is_one_of_them(cluster: Cluster) -> None:
    await at_level_1(cluster)
    answer = await cluster.active.perform(
        INCREMENTAL_ALTER_CONFIGS, setting("min.insync.replicas", "2")
    )
    assert [one.error_code for one in answer.results] == [errors_pb2.NONE]
    (entry,) = cluster.brokers[1].audited[-1:]
    assert entry["controller_epoch"] == 0


async def test_f6_brokers_at_once_decide_again_until_each_change_is_there(
    cluster: Cluster,
) -> None:
    await at_level_1(cluster)
    values = {
        1: ("min.insync.replicas", "2"),
        2: ("max.message.bytes", "4096"),
        3: ("unclean.leader.election.enable", "true"),
    }
    asked = [ask(bridge_of(cluster, number), setting(*pair)) for number, pair in values.items()]
    before = cluster.image.offset
    assert await asyncio.gather(*asked) == [[0, 0]] * 3
    assert dict(cluster.image.config("topic", "t")) == dict(values.values())
    assert cluster.image.offset > before + 3, "some of them were overtaken"


async def test_f6_who_is_overtaken_for_ever_is_told_so_and_has_changed_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_level_1(cluster)
    monkeypatch.setattr("quorate.broker.controller.bridge.ATTEMPTS_MAX", 3)
    assert ATTEMPTS_MAX > 3
    broker, others = cluster.brokers[2], iter(range(9))

    def overtake() -> None:
        cluster.set_topic_config("t", "k", str(next(others)))
        cluster.quorum.before_next(broker.quorum, overtake)

    cluster.quorum.before_next(broker.quorum, overtake)
    codes = await ask(broker.bridge, setting("min.insync.replicas", "2"))
    assert codes == [0, errors_pb2.REQUEST_TIMED_OUT]
    assert dict(cluster.image.config("topic", "t")) == {"k": "2"}
    assert not broker.audited


async def test_f6_a_level_raised_meanwhile_sends_it_to_the_controller(cluster: Cluster) -> None:
    await at_level_1(cluster)
    broker = cluster.brokers[2]
    cluster.quorum.before_next(broker.quorum, lambda: raise_to(cluster, 2))
    codes = await ask(broker.bridge, setting("min.insync.replicas", "2"))
    assert codes == [errors_pb2.NOT_CONTROLLER]
    assert not cluster.image.config("topic", "t")
    assert cluster.brokers[1].controller is not None, "that deposes nobody"


async def test_b3_a_broker_that_lost_its_session_writes_nothing(cluster: Cluster) -> None:
    await at_level_1(cluster)
    broker = cluster.brokers[2]
    session = broker.quorum.session_id
    cluster.quorum.before_next(broker.quorum, lambda: cluster.quorum.expire(session, tell=False))
    codes = await ask(broker.bridge, setting("min.insync.replicas", "2"))
    assert codes == [errors_pb2.NOT_CONTROLLER], "its deadline may bring a session, or another"
    assert not cluster.image.config("topic", "t")


async def test_f6_what_counts_is_the_image_that_was_decided_from(cluster: Cluster) -> None:
    await at_level_1(cluster)
    broker = cluster.brokers[2]
    writer = BridgeWriter(broker.identity, broker.quorum, broker.follower)
    assert writer.image is broker.follower.image
    cluster.set_topic_config("t", "k", "theirs")
    await cluster.at_rest()
    record = ConfigSet(entity_type="topic", entity_name="t", key="k", value="mine")
    with pytest.raises(ConcurrentChange):
        await writer.commit([Operation(records=(record,))])
    assert writer.image.config("topic", "t")["k"] == "theirs"
    await writer.commit([Operation(records=(record,))])
    assert cluster.image.config("topic", "t")["k"] == "mine"


async def test_f6_requests_at_one_broker_at_once_each_see_what_those_before_them_wrote(
    cluster: Cluster,
) -> None:
    await at_level_1(cluster)
    key = "leader.replication.throttled.replicas"

    def adding(number: int) -> admin_pb2.IncrementalAlterConfigsRequest:
        change = admin_pb2.ConfigChange(
            entity_type="topic", entity_name="t", appended={key: f"0:{number}"}
        )
        context = admin_pb2.RequestContext(principal_name=f"User:u{number}", timeout_ms=5_000)
        return admin_pb2.IncrementalAlterConfigsRequest(context=context, changes=[change])

    answers = await asyncio.gather(*(ask(bridge_of(cluster, 2), adding(n)) for n in range(5)))
    assert answers == [[0, 0]] * 5
    found = cluster.image.config("topic", "t")[key].split(",")
    assert found == [f"0:{number}" for number in range(5)]
    audited = [one["principal"] for one in cluster.brokers[2].audited]
    assert audited == [f"User:u{number}" for number in range(5)]
