"""Metadata: the state of UpdateMetadata in every version, missing topics, and the cache."""

import asyncio
import dataclasses
from pathlib import Path
from uuid import UUID

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession, CloseConnection
from quorate.common.types import NO_BROKER, BrokerId, Endpoint, LeaderEpoch
from quorate_proto.v1 import errors_pb2
from tests.support.acls import log_with
from tests.support.kafka_fakes import (
    BROKER,
    FakeBroker,
    FakeBrokerInside,
    FakePartition,
    fake_broker,
)
from tests.support.kafka_wire import Values, read_answer, request_frame
from tests.unit.kafka.conftest import Ask

METADATA = 3


def wanting(*names: str, allow_creation: bool = False) -> Values:
    return {
        "topics": [{"name": name, "topic_id": None} for name in names],
        "allow_auto_topic_creation": allow_creation,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def everything() -> Values:
    return {**wanting(), "topics": None}


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_is_described_in_every_version(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    topic = inside.metadata.add_topic("t", 2)
    response = await ask(METADATA, version, wanting("t"))
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
    (described,) = response.topics
    assert (described.error_code, described.name) == (0, "t")
    assert [p.partition_index for p in described.partitions] == [0, 1]
    assert {(p.error_code, p.leader_id, p.isr_nodes) for p in described.partitions} == {
        (0, 1, (1,))
    }
    if version >= 1:
        assert (broker.rack, response.controller_id) == ("r1", 1)
    if version >= 2:
        assert response.cluster_id == "test-cluster"
    if version >= 7:
        assert described.partitions[0].leader_epoch == 0
    if version >= 10:
        assert described.topic_id == UUID(bytes=topic.topic_id)


@pytest.mark.parametrize(("version", "request_values"), [(0, wanting()), (1, everything())])
async def test_all_topics(
    inside: FakeBrokerInside, ask: Ask, version: int, request_values: Values
) -> None:
    inside.metadata.add_topic("a")
    inside.metadata.add_topic("b")
    response = await ask(METADATA, version, request_values)
    assert {topic.name for topic in response.topics} == {"a", "b"}


async def test_no_topics_are_none_from_version_1_on(inside: FakeBrokerInside, ask: Ask) -> None:
    inside.metadata.add_topic("a")
    assert (await ask(METADATA, 1, wanting())).topics == ()


async def test_c19_a_leaderless_partition_says_so_and_a_new_leader_is_told_at_once(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    topic = inside.metadata.add_topic("t")
    await ask(METADATA, 12, wanting("t"))
    leaderless = FakePartition(leader=NO_BROKER, leader_epoch=LeaderEpoch(4))
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=(leaderless,))
    inside.metadata.changed()
    (described,) = (await ask(METADATA, 12, wanting("t"))).topics
    (partition,) = described.partitions
    assert partition.error_code == errors_pb2.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.leader_epoch) == (-1, 4)

    led = FakePartition(leader_epoch=LeaderEpoch(5))
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=(led,))
    inside.metadata.changed()
    (described,) = (await ask(METADATA, 12, wanting("t"))).topics
    assert (described.partitions[0].error_code, described.partitions[0].leader_epoch) == (0, 5)


async def test_a_leader_that_is_not_alive_is_no_leader(inside: FakeBrokerInside, ask: Ask) -> None:
    topic = inside.metadata.add_topic("t")
    dead = FakePartition(leader=BrokerId(2), replicas=(BrokerId(2), BrokerId(1)))
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=(dead,))
    inside.metadata.controller_id = BrokerId(2)
    inside.metadata.changed()
    response = await ask(METADATA, 12, wanting("t"))
    (partition,) = response.topics[0].partitions
    assert partition.error_code == errors_pb2.LEADER_NOT_AVAILABLE
    assert partition.offline_replicas == (2,)
    assert response.controller_id == -1


async def test_a_live_member_of_an_isr_that_nobody_leads_is_offline(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    """KIP-858: its log directory has failed. In a partition with a leader it is not offline."""
    topic = inside.metadata.add_topic("t")
    replicas = (BrokerId(1), BrokerId(2))
    leaderless = FakePartition(leader=NO_BROKER, replicas=replicas, isr=(BrokerId(1),))
    led = FakePartition(leader=BrokerId(1), replicas=replicas, isr=(BrokerId(1),))
    partitions = (led, leaderless)
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=partitions)
    inside.metadata.changed()
    first, second = (await ask(METADATA, 12, wanting("t"))).topics[0].partitions
    assert (first.error_code, first.offline_replicas) == (errors_pb2.NONE, (2,))
    assert second.error_code == errors_pb2.LEADER_NOT_AVAILABLE
    assert (second.leader_id, second.offline_replicas) == (-1, (1, 2))


@pytest.mark.parametrize("version", [5, 8, 12])
async def test_every_partition_has_its_own_replicas(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    ids = [(1, 2, 3), (1,), (3, 1), (2, 3), (), (1, 2, 3)]
    replica_lists = [tuple(map(BrokerId, members)) for members in ids]
    isr_lists = replica_lists[1:] + replica_lists[:1]
    partitions = tuple(
        FakePartition(replicas=replicas, isr=isr)
        for replicas, isr in zip(replica_lists, isr_lists, strict=True)
    )
    topic = inside.metadata.add_topic("t")
    inside.metadata.topics["t"] = dataclasses.replace(topic, partitions=partitions)
    inside.metadata.changed()
    described = (await ask(METADATA, version, wanting("t"))).topics[0].partitions
    assert [partition.replica_nodes for partition in described] == replica_lists
    assert [partition.isr_nodes for partition in described] == isr_lists
    assert [partition.offline_replicas for partition in described] == [
        tuple(member for member in replicas if member != 1) for replicas in replica_lists
    ]


NOBODY = UUID(int=5)


def wanting_ids(*topic_ids: UUID, name: str | None) -> Values:
    return {**wanting(), "topics": [{"name": name, "topic_id": one} for one in topic_ids]}


@pytest.mark.parametrize("name", [None, ""], ids=["null", "empty"])
@pytest.mark.parametrize("version", [12, 13])
async def test_kip_516_a_topic_is_described_by_its_id(
    inside: FakeBrokerInside, ask: Ask, version: int, name: str | None
) -> None:
    """Java's clients leave the name empty, others make it null."""
    topic_id = UUID(bytes=inside.metadata.add_topic("t").topic_id)
    values = wanting_ids(topic_id, NOBODY, topic_id, name=name)
    known, unknown = (await ask(METADATA, version, values)).topics
    assert (known.error_code, known.name, known.topic_id) == (0, "t", topic_id)
    assert len(known.partitions) == 1
    assert (unknown.error_code, unknown.name) == (errors_pb2.UNKNOWN_TOPIC_ID, None)
    assert (unknown.topic_id, unknown.partitions) == (NOBODY, ())


async def test_kip_516_names_do_not_count_beside_ids(inside: FakeBrokerInside, ask: Ask) -> None:
    inside.metadata.add_topic("t")
    topic_id = UUID(bytes=inside.metadata.add_topic("u").topic_id)
    values = wanting_ids(topic_id, name="")
    values["topics"].append({"name": "t", "topic_id": None})
    (only,) = (await ask(METADATA, 12, values)).topics
    assert only.name == "u"


@pytest.mark.parametrize("name", [None, "", "t"])
@pytest.mark.parametrize("version", [10, 11])
async def test_kip_516_ids_are_refused_in_the_versions_before(
    inside: FakeBrokerInside, ask: Ask, version: int, name: str | None
) -> None:
    topic_id = UUID(bytes=inside.metadata.add_topic("t").topic_id)
    (refused,) = (await ask(METADATA, version, wanting_ids(topic_id, name=name))).topics
    assert (refused.error_code, refused.partitions) == (errors_pb2.INVALID_REQUEST, ())
    assert (refused.name, refused.topic_id) == (name or "", topic_id)


async def test_kip_516_an_id_gives_no_right_to_the_name(tmp_path: Path) -> None:
    acls = log_with()
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
    broker = fake_broker(tmp_path, image=lambda: acls.image, **settings)
    broker.metadata.brokers[BROKER] = FakeBroker(Endpoint("h", 1), Endpoint("h", 2))
    topic_id = UUID(bytes=broker.metadata.add_topic("t").topic_id)
    frame = request_frame(METADATA, 12, wanting_ids(topic_id, NOBODY, name=""))
    dispatcher = RequestDispatcher(broker.services, api_table())
    request = dispatcher.decode(memoryview(bytearray(frame)), ClientSession("h"))
    encoded = b"".join(await request.run())
    hidden, unknown = read_answer(METADATA, 12, (7).to_bytes(4) + b"\0" + encoded)[1].topics
    assert (hidden.error_code, hidden.name) == (errors_pb2.TOPIC_AUTHORIZATION_FAILED, None)
    assert (hidden.topic_id, hidden.partitions) == (topic_id, ())
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_ID


async def test_an_unknown_topic_is_not_created_unless_the_client_allows_it(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    (unknown,) = (await ask(METADATA, 9, wanting("new"))).topics
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert inside.forwarder.creations == []


async def test_an_unknown_topic_is_not_created_where_that_is_off(
    inside: FakeBrokerInside, tmp_path: Path
) -> None:
    off = fake_broker(tmp_path, auto_create_topics_enable=False)
    services = dataclasses.replace(inside.services, config=off.services.config)
    frame = memoryview(bytearray(request_frame(METADATA, 9, wanting("new", allow_creation=True))))
    await RequestDispatcher(services, api_table()).decode(frame, ClientSession("h")).run()
    assert inside.forwarder.creations == []


@pytest.mark.parametrize("version", [1, 4, 12])
async def test_an_unknown_topic_is_created_with_the_clusters_defaults(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    (topic,) = (await ask(METADATA, version, wanting("new", allow_creation=True))).topics
    assert topic.error_code == errors_pb2.NONE
    (creation,) = inside.forwarder.creations
    (new,) = creation.topics
    assert (new.name, new.num_partitions, new.replication_factor) == ("new", -1, -1)
    assert creation.context.client_host == "10.0.0.9"


async def test_q13_topics_that_come_by_themselves_are_asked_for_by_the_clusters_own_user(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    await ask(METADATA, 12, wanting("new", allow_creation=True))
    (creation,) = inside.forwarder.creations
    assert creation.context.principal_name == "Broker:quorate-cluster-admin"
    assert not creation.context.accept_over_quota


async def test_q13_over_its_quota_the_client_is_to_ask_again(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.forwarder.refusals["new"] = errors_pb2.THROTTLING_QUOTA_EXCEEDED
    (topic,) = (await ask(METADATA, 12, wanting("new", allow_creation=True))).topics
    assert topic.error_code == errors_pb2.LEADER_NOT_AVAILABLE


async def test_many_clients_asking_for_one_new_topic_cause_one_creation(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.forwarder.gate = asyncio.Event()
    values = wanting("new", allow_creation=True)
    asking = [asyncio.ensure_future(ask(METADATA, 9, values)) for _ in range(5)]
    while not inside.forwarder.creations:
        await asyncio.sleep(0)
    inside.forwarder.gate.set()
    await asyncio.gather(*asking)
    assert len(inside.forwarder.creations) == 1


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (errors_pb2.INVALID_TOPIC_EXCEPTION, errors_pb2.INVALID_TOPIC_EXCEPTION),
        (errors_pb2.INVALID_REPLICATION_FACTOR, errors_pb2.INVALID_REPLICATION_FACTOR),
        (errors_pb2.REQUEST_TIMED_OUT, errors_pb2.LEADER_NOT_AVAILABLE),
        (errors_pb2.TOPIC_ALREADY_EXISTS, errors_pb2.LEADER_NOT_AVAILABLE),
    ],
)
async def test_a_failed_creation_is_told_as_final_or_as_worth_retrying(
    inside: FakeBrokerInside, ask: Ask, refusal: int, told: int
) -> None:
    inside.forwarder.refusals["new"] = refusal
    (topic,) = (await ask(METADATA, 9, wanting("new", allow_creation=True))).topics
    assert topic.error_code == told


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("new", errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic abc", errors_pb2.INVALID_TOPIC_EXCEPTION),
        ("..", errors_pb2.INVALID_TOPIC_EXCEPTION),
        ("n" * 250, errors_pb2.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_a_client_does_not_wait_for_a_topic_that_cannot_be(
    ask: Ask, name: str, code: int
) -> None:
    (topic,) = (await ask(METADATA, 12, wanting(name))).topics
    assert topic.error_code == code


async def test_requests_of_one_shape_share_an_encoding_until_the_metadata_changes(
    inside: FakeBrokerInside,
) -> None:
    inside.metadata.add_topic("t")
    dispatcher = RequestDispatcher(inside.services, api_table())

    async def body() -> object:
        frame = memoryview(bytearray(request_frame(METADATA, 12, wanting("t"))))
        return (await dispatcher.decode(frame, ClientSession("h")).run())[0]

    first = await body()
    assert await body() is first
    inside.metadata.changed()
    assert await body() is not first


async def test_before_the_first_update_nothing_is_said_to_be_missing(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.brokers = {}
    with pytest.raises(CloseConnection, match="not told of the cluster yet"):
        await ask(METADATA, 12, wanting("t"))
