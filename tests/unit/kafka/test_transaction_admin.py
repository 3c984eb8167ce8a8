"""The admin APIs of transactions over the wire: descriptions, and the end of a hanging one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.wire.primitives import Cursor
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.api import MarkerEntry
from quorate.broker.replication.serving.producer_states import ProducerState
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.acls import acl, log_with
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import Values, read_answer, request_body
from tests.unit.kafka.conftest import Ask

MARKERS, PRODUCERS, DESCRIBE, LIST = 27, 61, 65, 66
TP = TopicPartition("t", 0)
WALL_MS = 1_000_000


async def begin(inside: FakeBrokerInside, name: str, *partitions: int) -> ProducerEpoch:
    """Begin a transaction, which is open if it has partitions, and return its producer."""
    shard = inside.services.transactions.shard_of(name)
    producer = await shard.init_producer(name, 60_000, None)
    tps = frozenset(TopicPartition("t", number) for number in partitions)
    if tps:
        assert await shard.add_partitions(name, producer, tps) == 0
    return producer


async def with_topics(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t", 2)
    inside.metadata.add_topic(TRANSACTIONS_TOPIC, 3)
    while inside.services.transactions.is_loading:
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
async def _topics(inside: FakeBrokerInside) -> None:
    await with_topics(inside)


def listing(*states: str, producer_ids: tuple[int, ...] = (), duration: int = -1) -> Values:
    return {
        "state_filters": list(states),
        "producer_id_filters": list(producer_ids),
        "duration_filter": duration,
    }


async def names(ask: Ask, version: int, values: Values) -> dict[str, str]:
    answer = await ask(LIST, version, values)
    assert answer.error_code == 0
    return {one.transactional_id: one.transaction_state for one in answer.transaction_states}


async def test_an_open_transaction_is_described_with_its_partitions(
    ask: Ask, inside: FakeBrokerInside
) -> None:
    producer = await begin(inside, "pay", 1, 0)
    answer = await ask(DESCRIBE, 0, {"transactional_ids": ["pay", "nobody", ""]})
    found, unknown, empty = answer.transaction_states
    assert (found.error_code, found.transactional_id) == (0, "pay")
    assert found.transaction_state == "Ongoing"
    assert (found.producer_id, found.producer_epoch) == producer
    assert [(one.topic, one.partitions) for one in found.topics] == [("t", (0, 1))]
    assert unknown.error_code == errors_pb2.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == errors_pb2.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1])
async def test_transactions_are_listed_by_state_and_producer(
    ask: Ask, inside: FakeBrokerInside, version: int
) -> None:
    await begin(inside, "idle")
    producer = await begin(inside, "pay", 0)
    assert await names(ask, version, listing()) == {"idle": "Empty", "pay": "Ongoing"}
    assert await names(ask, version, listing("Ongoing", "Dead")) == {"pay": "Ongoing"}
    by_id = listing(producer_ids=(producer.producer_id,))
    assert await names(ask, version, by_id) == {"pay": "Ongoing"}
    answer = await ask(LIST, version, listing("Bored", "Empty"))
    assert list(answer.unknown_state_filters) == ["Bored"]
    assert [one.transactional_id for one in answer.transaction_states] == ["idle"]
    assert await names(ask, version, listing("Bored")) == {}


async def test_only_open_transactions_are_long(ask: Ask, inside: FakeBrokerInside) -> None:
    await begin(inside, "idle")
    await begin(inside, "pay", 0)
    assert await names(ask, 1, listing(duration=3_600_000)) == {}


async def test_producers_of_a_partition_are_described(ask: Ask, inside: FakeBrokerInside) -> None:
    inside.replicas.producers[TP] = [ProducerState(7, 3, 41, 1_234, 5, 40)]
    wanted = {"topics": [{"name": "t", "partition_indexes": [0, 9]}]}
    (topic,) = (await ask(PRODUCERS, 0, wanted)).topics
    known, unknown = topic.partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 41)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (1_234, 5)
    assert producer.current_txn_start_offset == 40
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert "t-9" in unknown.error_message


async def test_a_marker_is_written_where_it_is_asked_for(
    ask: Ask, inside: FakeBrokerInside
) -> None:
    inside.replicas.marker_codes[TopicPartition("t", 1)] = errors_pb2.INVALID_PRODUCER_EPOCH
    marker = {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0, 1]}],
        "coordinator_epoch": 4,
    }
    (result,) = (await ask(MARKERS, 1, {"markers": [marker]})).markers
    assert result.producer_id == 7
    (topic,) = result.topics
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, errors_pb2.NONE),
        (1, errors_pb2.INVALID_PRODUCER_EPOCH),
    ]
    assert inside.replicas.markers[0] == MarkerEntry(TP, EndMarker(7, 3, False, 4))


async def test_f5_whoever_asks_sees_what_they_may_describe(tmp_path: Path) -> None:
    log = log_with(
        acl("User:alice", AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "pay"),
        acl("User:bob", AclOperation.ALL, ResourceType.TRANSACTIONAL_ID, "*"),
    )
    options = {"authorizer.class.name": STANDARD_AUTHORIZER}
    inside = fake_broker(tmp_path, image=lambda: log.image, **options)
    await with_topics(inside)
    for name in ("pay", "other"):
        await begin(inside, name, 0)

    async def ask(key: int, values: Values) -> Any:  # noqa: ANN401 - kio's
        api = api_table()[key]
        raw = memoryview(bytearray(request_body(key, 0, values)))
        context = RequestContext(0, "client", "h", KafkaPrincipal("alice"))
        body = api.decode_body(0, Cursor(raw))
        answer = b"".join(
            api.encode_body(context.version, await api.handle(inside.services, context, body))
        )
        return read_answer(key, 0, b"\0\0\0\0\0" + answer)[1]

    listed = await ask(LIST, {"state_filters": [], "producer_id_filters": []})
    assert [one.transactional_id for one in listed.transaction_states] == ["pay"]
    pay, other = (await ask(DESCRIBE, {"transactional_ids": ["pay", "other"]})).transaction_states
    assert pay.error_code == 0
    assert list(pay.topics) == [], "the topic may not be described"
    assert other.error_code == errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_broker_without_a_replica_of_an_existing_partition_is_no_follower(
    ask: Ask, inside: FakeBrokerInside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's client repeats UNKNOWN_TOPIC_OR_PARTITION until its time is over."""
    monkeypatch.setattr(inside.replicas, "_log", lambda _tp: None)
    asked = {"topics": [{"name": "t", "partition_indexes": [0, 9]}]}
    (topic,) = (await ask(PRODUCERS, 0, asked)).topics
    assert [one.error_code for one in topic.partitions] == [
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    ]
