"""Transactions over the wire: every version that clients may choose, and every refusal."""

import asyncio
from typing import Any

import pytest

from quorate.broker.config.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import Values, producing, record_batch
from tests.support.waiting import async_wait_until
from tests.unit.kafka.conftest import Ask

PRODUCE, FIND, INIT, ADD, ADD_OFFSETS, END = 0, 10, 22, 24, 25, 26
TIMEOUT_MS = 60_000


@pytest.fixture(autouse=True)
async def _topics(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t", 2)
    inside.metadata.add_topic(OFFSETS_TOPIC, 3)
    inside.metadata.add_topic(TRANSACTIONS_TOPIC, 3)
    while inside.services.transactions.is_loading:
        await asyncio.sleep(0)


def coming_up(producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = TIMEOUT_MS) -> Values:
    return {
        "transactional_id": "pay",
        "transaction_timeout": timeout_ms,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


def adding(producer: Any, *partitions: int, topic: str = "t") -> Values:  # noqa: ANN401 - kio's
    return {
        "v3_and_below_transactional_id": "pay",
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
    }


def of(producer: Any, **more: object) -> Values:  # noqa: ANN401 - kio's
    return {
        "transactional_id": "pay",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        **more,
    }


async def come_up(ask: Ask, **values: int) -> Any:  # noqa: ANN401 - kio's
    response = await ask(INIT, 4, coming_up(**values))
    assert response.error_code == 0
    return response


def codes(response: Any) -> list[int]:  # noqa: ANN401 - kio's
    return [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


@pytest.mark.parametrize("version", range(1, 5))
async def test_whoever_leads_its_partition_coordinates_a_transactional_id(
    ask: Ask, version: int
) -> None:
    values = {"key": "pay", "key_type": 1, "coordinator_keys": ["pay"]}
    response = await ask(FIND, version, values)
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "127.0.0.1", 9092)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_from_beginning_to_end(
    inside: FakeBrokerInside, ask: Ask, version: int, commit: bool
) -> None:
    producer = await ask(INIT, version, coming_up())
    assert (producer.error_code, producer.producer_epoch) == (0, 0)
    assert codes(await ask(ADD, version, adding(producer, 0, 1))) == [0, 0]
    response = await ask(ADD_OFFSETS, version, of(producer, group_id="g"))
    assert response.error_code == 0
    ended = await ask(END, version, of(producer, committed=commit))
    assert ended.error_code == 0
    await async_wait_until(lambda: inside.markers.sent, "the markers")
    offsets = TopicPartition(OFFSETS_TOPIC, partition_of("g", 3))
    partitions = frozenset({TopicPartition("t", 0), TopicPartition("t", 1), offsets})
    own = ProducerEpoch(producer.producer_id, 0)
    assert inside.markers.sent == [("pay", own, commit, partitions)]


@pytest.mark.parametrize("version", range(4))
async def test_who_was_replaced_is_told_so_in_words_it_knows(ask: Ask, version: int) -> None:
    old = await come_up(ask)
    await come_up(ask)
    code = errors_pb2.INVALID_PRODUCER_EPOCH if version < 2 else errors_pb2.PRODUCER_FENCED
    assert codes(await ask(ADD, version, adding(old, 0))) == [code]
    response = await ask(ADD_OFFSETS, version, of(old, group_id="g"))
    assert response.error_code == code
    assert (await ask(END, version, of(old, committed=True))).error_code == code


@pytest.mark.parametrize("version", [3, 4])
async def test_kip_360_who_was_replaced_cannot_recover(ask: Ask, version: int) -> None:
    old = await come_up(ask)
    own = coming_up(old.producer_id, old.producer_epoch)
    bumped = await ask(INIT, version, own)
    assert (bumped.producer_id, bumped.producer_epoch) == (old.producer_id, 1)
    await come_up(ask)
    refused = await ask(INIT, version, own)
    code = errors_pb2.INVALID_PRODUCER_EPOCH if version < 4 else errors_pb2.PRODUCER_FENCED
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_timeout_is_within_what_the_cluster_allows(ask: Ask, timeout_ms: int) -> None:
    response = await ask(INIT, 4, coming_up(timeout_ms=timeout_ms))
    assert response.error_code == errors_pb2.INVALID_TRANSACTION_TIMEOUT


async def test_a_transactional_id_is_not_empty(ask: Ask) -> None:
    response = await ask(INIT, 4, {**coming_up(), "transactional_id": ""})
    assert response.error_code == errors_pb2.INVALID_REQUEST


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("t", 2, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        ("unknown", 0, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        (OFFSETS_TOPIC, 0, errors_pb2.TOPIC_AUTHORIZATION_FAILED),
        (TRANSACTIONS_TOPIC, 0, errors_pb2.TOPIC_AUTHORIZATION_FAILED),
    ],
)
async def test_all_partitions_are_added_or_none(
    inside: FakeBrokerInside, ask: Ask, topic: str, partition: int, code: int
) -> None:
    producer = await come_up(ask)
    values = adding(producer, 0)
    values["v3_and_below_topics"].append({"name": topic, "partitions": [partition]})
    response = await ask(ADD, 3, values)
    assert codes(response) == [errors_pb2.OPERATION_NOT_ATTEMPTED, code]
    assert inside.services.transactions.find("pay").partitions == frozenset()


async def test_a_stranger_is_refused(ask: Ask) -> None:
    producer = await come_up(ask)
    values = adding(producer, 0)
    values["v3_and_below_producer_id"] = 9
    assert codes(await ask(ADD, 3, values)) == [errors_pb2.INVALID_PRODUCER_ID_MAPPING]
    values = {**of(producer, committed=True), "transactional_id": "other"}
    response = await ask(END, 3, values)
    assert response.error_code == errors_pb2.INVALID_PRODUCER_ID_MAPPING


async def test_what_was_never_begun_cannot_be_ended(ask: Ask) -> None:
    producer = await come_up(ask)
    response = await ask(END, 3, of(producer, committed=True))
    assert response.error_code == errors_pb2.INVALID_TXN_STATE


async def test_offsets_of_a_group_without_a_coordinator_are_worth_a_retry(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    producer = await come_up(ask)
    del inside.metadata.topics[OFFSETS_TOPIC]
    response = await ask(ADD_OFFSETS, 3, of(producer, group_id="g"))
    assert response.error_code == errors_pb2.COORDINATOR_NOT_AVAILABLE


async def test_requests_of_other_coordinators_ids_are_sent_on(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    for partition in range(3):
        inside.services.transactions.resign(partition)
    for response in (
        await ask(INIT, 4, coming_up()),
        await ask(END, 3, of(await ask(INIT, 4, coming_up()), committed=True)),
    ):
        assert response.error_code == errors_pb2.NOT_COORDINATOR


async def test_what_is_produced_by_a_transactional_id_may_be_part_of_a_transaction(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    await ask(PRODUCE, 9, producing(record_batch(), transactional_id="pay"))
    await ask(PRODUCE, 9, producing(record_batch()))
    origins = [entry.origin for entries, *_ in inside.replicas.produced for entry in entries]
    assert origins == [AppendOrigin.TRANSACTIONAL_CLIENT, AppendOrigin.CLIENT]
