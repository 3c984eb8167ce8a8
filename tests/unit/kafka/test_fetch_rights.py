"""Fetch sessions and rights: a session never has a partition that is unknown or may not be read.
And no client fetches as a follower.
"""

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.records.fetch_api import FetchApi
from quorate.broker.kafka.records.fetch_messages import FetchRequest
from quorate.broker.kafka.records.fetch_session_cache import FetchSessionCache
from quorate.broker.replication.api import FetchPartition, ProduceEntry
from quorate.broker.security.principal import ANONYMOUS
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.acls import Binding, acl, added, log_with, removed
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import Values, fetching, record_batch
from tests.unit.kafka.conftest import Ask

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 1, 2, 23
VERSIONS_WITH_SESSIONS = (7, 8, 9, 10, 11, 12)
DENIED = errors_pb2.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


def reading(topic: str) -> Binding:
    return acl(str(ANONYMOUS), AclOperation.READ, ResourceType.TOPIC, topic)


class Acls:
    """The entries that the broker knows. They change at once."""

    def __init__(self) -> None:
        self.log = log_with(reading("mine"))

    def grant(self, binding: Binding) -> None:
        self.log.write_as_controller(added(binding))

    def revoke(self, binding: Binding) -> None:
        self.log.write_as_controller(removed(binding))


@pytest.fixture
def acls() -> Acls:
    return Acls()


@pytest.fixture
def inside(tmp_path: Path, acls: Acls) -> FakeBrokerInside:
    """A broker with the topics mine and theirs, two partitions each. Its clients may read mine."""
    broker = fake_broker(
        tmp_path,
        image=lambda: acls.log.image,
        **{"authorizer.class.name": STANDARD_AUTHORIZER},
    )
    for topic in ("mine", "theirs"):
        broker.metadata.add_topic(topic, 2)
    return broker


def of(*partitions: tuple[str, int], session: tuple[int, int], **fields: Any) -> Values:  # noqa: ANN401
    """A Fetch request for these partitions."""
    template = fetching(session=session, **fields)
    (topic,) = template["topics"]
    (partition,) = topic["partitions"]
    topics = [
        {"topic": name, "partitions": [{**partition, "partition": n}]} for name, n in partitions
    ]
    return {**template, "topics": topics}


def codes(response: Any) -> dict[tuple[str, int], int]:  # noqa: ANN401 - a FetchResponse
    assert getattr(response, "error_code", errors_pb2.NONE) == errors_pb2.NONE
    return {
        (topic.topic, one.partition_index): int(one.error_code)
        for topic in response.responses
        for one in topic.partitions
    }


def sessions_of(inside: FakeBrokerInside) -> int:
    return len(inside.services.fetch_sessions)


MINE, THEIRS, NO_TOPIC, NO_PARTITION = ("mine", 0), ("theirs", 0), ("none", 0), ("mine", 7)


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
async def test_f5_what_may_not_be_read_gets_its_error_each_time_and_no_session(
    inside: FakeBrokerInside, ask: Ask, acls: Acls, version: int
) -> None:
    for _ in range(2):
        refused = await ask(FETCH, version, of(MINE, THEIRS, session=(0, 0)))
        assert (refused.session_id, codes(refused)) == (0, {MINE: 0, THEIRS: DENIED})
        assert sessions_of(inside) == 0
    acls.grant(reading("theirs"))
    granted = await ask(FETCH, version, of(MINE, THEIRS, session=(0, 0)))
    assert granted.session_id > 0
    assert codes(granted) == {MINE: 0, THEIRS: 0}


@pytest.mark.parametrize("version", VERSIONS_WITH_SESSIONS)
@pytest.mark.parametrize("unknown", [NO_TOPIC, NO_PARTITION])
async def test_f5_what_is_not_there_gets_its_error_each_time_and_no_session(
    inside: FakeBrokerInside, ask: Ask, acls: Acls, version: int, unknown: tuple[str, int]
) -> None:
    acls.grant(reading("none"))
    for _ in range(2):
        refused = await ask(FETCH, version, of(MINE, unknown, session=(0, 0)))
        assert (refused.session_id, codes(refused)) == (0, {MINE: 0, unknown: UNKNOWN})
        assert sessions_of(inside) == 0
    inside.metadata.add_topic(unknown[0], 8)
    created = await ask(FETCH, version, of(MINE, unknown, session=(0, 0)))
    assert created.session_id > 0
    assert codes(created) == {MINE: 0, unknown: 0}


@pytest.mark.parametrize(
    ("added_later", "code"), [(THEIRS, DENIED), (NO_TOPIC, DENIED), (NO_PARTITION, UNKNOWN)]
)
async def test_f5_a_session_that_is_given_such_a_partition_ends_with_that_answer(
    inside: FakeBrokerInside, ask: Ask, added_later: tuple[str, int], code: int
) -> None:
    session = (await ask(FETCH, 12, of(MINE, session=(0, 0)))).session_id
    await inside.replicas.produce(
        [ProduceEntry(TopicPartition(*MINE), memoryview(bytearray(record_batch(1))))], 1, 0
    )
    last = await ask(FETCH, 12, of(added_later, session=(session, 1)))
    assert (last.session_id, codes(last)) == (0, {MINE: 0, added_later: code})
    assert sessions_of(inside) == 0
    assert not inside.replicas.waiters[TopicPartition(*MINE)]
    gone = await ask(FETCH, 12, of(session=(session, 2)))
    assert gone.error_code == errors_pb2.FETCH_SESSION_ID_NOT_FOUND


async def test_f5_a_right_that_is_revoked_is_gone_with_the_next_request_of_the_session(
    inside: FakeBrokerInside, ask: Ask, acls: Acls
) -> None:
    acls.grant(reading("theirs"))
    session = (await ask(FETCH, 12, of(MINE, THEIRS, session=(0, 0)))).session_id
    assert session > 0
    for topic in ("mine", "theirs"):
        records = memoryview(bytearray(record_batch(1)))
        await inside.replicas.produce([ProduceEntry(TopicPartition(topic, 0), records)], 1, 0)
    acls.revoke(reading("theirs"))
    revoked = await ask(FETCH, 12, of(session=(session, 1), max_wait_ms=60_000))
    assert (revoked.session_id, codes(revoked)) == (0, {MINE: 0, THEIRS: DENIED})
    records_of = {t.topic: t.partitions[0].records for t in revoked.responses}
    assert records_of["mine"]
    assert not records_of["theirs"]
    assert sessions_of(inside) == 0


async def test_f5_a_topic_that_is_deleted_ends_the_sessions_that_have_it(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    session = (await ask(FETCH, 12, of(MINE, session=(0, 0)))).session_id
    del inside.metadata.topics["mine"]
    inside.replicas.logs.clear()
    for waiter in list(inside.replicas.waiters[TopicPartition(*MINE)]):
        waiter.wake()
    deleted = await ask(FETCH, 12, of(session=(session, 1)))
    assert (deleted.session_id, codes(deleted)) == (0, {MINE: UNKNOWN})
    assert sessions_of(inside) == 0


async def test_f5_an_abandoned_request_ends_its_session(inside: FakeBrokerInside, ask: Ask) -> None:
    """Its client does not know how far the session is, so it begins another one."""
    session = (await ask(FETCH, 12, of(MINE, session=(0, 0)))).session_id
    request = of(session=(session, 1), max_wait_ms=60_000)
    polling = asyncio.ensure_future(ask(FETCH, 12, request))
    for _ in range(5):
        await asyncio.sleep(0)
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert sessions_of(inside) == 0
    assert not inside.replicas.waiters[TopicPartition(*MINE)]


async def test_f5_beyond_the_limit_of_partitions_there_is_an_answer_and_no_session(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    services = inside.services
    object.__setattr__(
        services, "fetch_sessions", FetchSessionCache(9, lambda: 0, partitions_max=2)
    )
    inside.metadata.add_topic("mine", 3)
    three = await ask(FETCH, 12, of(("mine", 0), ("mine", 1), ("mine", 2), session=(0, 0)))
    assert (three.session_id, len(codes(three))) == (0, 3)
    repeated = await ask(FETCH, 12, of(MINE, MINE, ("mine", 1), session=(0, 0)))
    assert repeated.session_id > 0, "a partition that is named twice is one"
    grown = await ask(FETCH, 12, of(("mine", 2), session=(repeated.session_id, 1)))
    assert (grown.session_id, len(codes(grown))) == (0, 3)
    assert sessions_of(inside) == 0


BYTES_MAX = 1_000_000


@pytest.mark.parametrize(("topic", "count"), [("theirs", 200_000), ("mine", 20_000)])
async def test_f5_a_client_without_rights_leaves_nothing_behind(
    inside: FakeBrokerInside, topic: str, count: int
) -> None:
    """Its session held 50 MB before. It may read ``mine``, which has no such partitions."""
    numbers = range(2, 2 + count)
    wants = [FetchPartition(TopicPartition(topic, n), 0, 1) for n in numbers]
    request = FetchRequest(0, 1, 1 << 20, 0, 0, 0, [(topic, None, wants)], [], "")
    context = RequestContext(12, "client", "10.0.0.9")
    tracemalloc.start()
    try:
        response = await FetchApi().handle(inside.services, context, request)
        assert response.session_id == 0
        del response
        gc.collect()
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left_bytes < BYTES_MAX
    assert sessions_of(inside) == 0


@pytest.mark.parametrize("version", range(4, 13))
async def test_f5_nobody_fetches_as_a_follower(
    inside: FakeBrokerInside, ask: Ask, acls: Acls, version: int
) -> None:
    await inside.replicas.produce(
        [ProduceEntry(TopicPartition(*MINE), memoryview(bytearray(record_batch(1))))], 1, 0
    )
    follower = of(MINE, THEIRS, NO_TOPIC, session=(0, 0), replica_id=1)
    refused = await ask(FETCH, version, follower)
    assert codes(refused) == {MINE: DENIED, THEIRS: DENIED, NO_TOPIC: DENIED}
    acls.grant(acl(str(ANONYMOUS), AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
    broker = await ask(FETCH, version, follower)
    none = errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert codes(broker) == {MINE: none, THEIRS: none, NO_TOPIC: UNKNOWN}
    for response in (refused, broker):
        assert not any(one.records for topic in response.responses for one in topic.partitions)
    assert sessions_of(inside) == 0
    for consumer in (-1, -2, -3):
        served = await ask(FETCH, version, of(MINE, session=(0, -1), replica_id=consumer))
        assert served.responses[0].partitions[0].records


async def test_f5_nobody_continues_a_session_as_a_follower(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    session = (await ask(FETCH, 12, of(MINE, session=(0, 0)))).session_id
    follower = await ask(FETCH, 12, of(MINE, session=(session, 1), replica_id=1))
    assert follower.error_code == errors_pb2.FETCH_SESSION_ID_NOT_FOUND
    assert (await ask(FETCH, 12, of(session=(session, 1)))).session_id == session


NOT_CONSUMERS = (-3, -2, 0, 1)


@pytest.mark.parametrize("version", range(1, 12))
async def test_f5_offsets_are_those_of_a_consumer_whoever_the_client_says_it_is(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    """Kafka tells other clients than consumers where the log ends, beyond what is committed."""
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": name, "partitions": [partition]} for name in ("mine", "theirs")]
    request = {"isolation_level": 0, "topics": topics, "timeout": 1_000}
    consumers = await ask(LIST_OFFSETS, version, {"replica_id": -1, **request})
    assert [int(one.partitions[0].error_code) for one in consumers.topics] == [0, DENIED]
    for replica_id in NOT_CONSUMERS:
        told = await ask(LIST_OFFSETS, version, {"replica_id": replica_id, **request})
        assert told == consumers


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_f5_epochs_are_told_by_the_rights_of_the_client_not_by_its_replica_id(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    topics = [{"topic": name, "partitions": [partition]} for name in ("mine", "theirs")]
    consumers = await ask(OFFSET_FOR_LEADER_EPOCH, version, {"replica_id": -1, "topics": topics})
    assert [int(one.partitions[0].error_code) for one in consumers.topics] == [0, DENIED]
    for replica_id in NOT_CONSUMERS:
        request = {"replica_id": replica_id, "topics": topics}
        assert await ask(OFFSET_FOR_LEADER_EPOCH, version, request) == consumers
