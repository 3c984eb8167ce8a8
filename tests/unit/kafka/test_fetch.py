"""Fetch: the log's own buffers between headers, in every version; long poll."""

import asyncio

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.replication.api import ProduceEntry
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import fetching, record_batch, request_frame
from tests.unit.kafka.conftest import Ask

FETCH = 1


async def append(inside: FakeBrokerInside, count: int, partition: int = 0) -> bytes:
    """Append a batch, and return it as the log stores it."""
    tp = TopicPartition("t", partition)
    await inside.replicas.produce(
        [ProduceEntry(tp, memoryview(bytearray(record_batch(count))))], 1, 0
    )
    return bytes(inside.replicas.logs[tp].batches[-1].data)


@pytest.mark.parametrize("version", range(4, 13))
async def test_records_come_back_as_they_lie_in_the_log(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("t", 2)
    stored = [await append(inside, 3), await append(inside, 2)]
    response = await ask(FETCH, version, fetching(partitions=(0, 1, 7)))
    (topic,) = response.responses
    full, empty, unknown = topic.partitions
    assert topic.topic == "t"
    assert (full.partition_index, full.error_code, full.high_watermark) == (0, 0, 5)
    assert full.last_stable_offset == 5
    assert full.records == b"".join(stored)
    assert (empty.partition_index, empty.error_code, empty.records) == (1, 0, b"")
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert (unknown.records, unknown.high_watermark) == (b"", -1)
    if version >= 5:
        assert full.log_start_offset == 0
    if version >= 7:
        assert (response.error_code, response.session_id) == (0, 0)
    if version >= 11:
        assert full.preferred_read_replica == -1


@pytest.mark.parametrize("version", range(4, 13))
async def test_kip_98_aborted_transactions_are_told_to_who_reads_committed(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("t")
    stored = await append(inside, 3)
    log = inside.replicas.logs[TopicPartition("t", 0)]
    log.aborted = [AbortedTransaction(7, 0, 2), AbortedTransaction(8, 1, 5)]
    response = await ask(FETCH, version, fetching(isolation_level=1))
    (found,) = response.responses[0].partitions
    aborted = found.aborted_transactions
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(7, 0), (8, 1)]
    assert found.records == stored
    response = await ask(FETCH, version, fetching())
    assert not response.responses[0].partitions[0].aborted_transactions


async def test_records_are_not_copied(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t")
    await append(inside, 3)
    frame = memoryview(bytearray(request_frame(FETCH, 12, fetching())))
    buffers = (
        await RequestDispatcher(inside.services, api_table())
        .decode(frame, ClientSession("h"))
        .run()
    )
    stored = inside.replicas.logs[TopicPartition("t", 0)].batches[0].data
    assert any(buffer is stored for buffer in buffers)


async def test_c16_beyond_the_end_is_out_of_range_and_at_the_end_is_empty(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t")
    await append(inside, 3)
    (beyond,) = (await ask(FETCH, 11, fetching(4))).responses[0].partitions
    assert beyond.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    (at_end,) = (await ask(FETCH, 11, fetching(3))).responses[0].partitions
    assert (at_end.error_code, at_end.records) == (0, b"")


async def test_a_long_poll_wakes_when_records_arrive(inside: FakeBrokerInside, ask: Ask) -> None:
    inside.metadata.add_topic("t")
    polling = asyncio.ensure_future(ask(FETCH, 12, fetching(max_wait_ms=60_000)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not polling.done()
    stored = await append(inside, 1)
    (partition,) = (await polling).responses[0].partitions
    assert partition.records == stored


@pytest.mark.parametrize(("isolation_level", "aborted"), [(0, None), (1, ())])
async def test_read_committed_is_told_that_nothing_was_aborted(
    inside: FakeBrokerInside, ask: Ask, isolation_level: int, aborted: object
) -> None:
    inside.metadata.add_topic("t")
    response = await ask(FETCH, 12, fetching(isolation_level=isolation_level))
    assert response.responses[0].partitions[0].aborted_transactions == aborted


def test_a_fetch_counts_its_largest_answer_and_may_be_abandoned(inside: FakeBrokerInside) -> None:
    dispatcher = RequestDispatcher(inside.services, api_table())
    frame = request_frame(FETCH, 12, fetching(max_bytes=5000))
    request = dispatcher.decode(memoryview(bytearray(frame)), ClientSession("h"))
    assert request.cost_bytes == len(frame) + 5000
    assert request.abandonable
    frame = request_frame(FETCH, 12, fetching(max_bytes=2**31 - 1))
    request = dispatcher.decode(memoryview(bytearray(frame)), ClientSession("h"))
    assert request.cost_bytes == len(frame) + (55 << 20)


async def test_records_that_were_read_are_held_until_the_answer_is_sent(
    inside: FakeBrokerInside,
) -> None:
    inside.metadata.add_topic("t")
    stored = await append(inside, 3)
    frame = memoryview(bytearray(request_frame(FETCH, 12, fetching())))
    request = RequestDispatcher(inside.services, api_table()).decode(frame, ClientSession("h"))
    await request.run()
    assert inside.services.memory.responses.held_bytes == len(stored)
    assert request.lease.held_bytes == len(stored)


async def test_a_fetch_waits_while_answers_hold_all_their_memory(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t")
    stored = await append(inside, 3)
    responses = inside.services.memory.responses
    held_bytes = responses.room_bytes
    responses.change(held_bytes)
    polling = asyncio.ensure_future(ask(FETCH, 12, fetching(max_wait_ms=60_000)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not polling.done()
    responses.change(-held_bytes)
    (partition,) = (await polling).responses[0].partitions
    assert partition.records == stored


async def test_a_fetch_that_gets_no_memory_in_its_time_is_answered_with_nothing(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t")
    await append(inside, 3)
    inside.services.memory.responses.change(inside.services.memory.responses.room_bytes)
    (partition,) = (await ask(FETCH, 12, fetching(max_wait_ms=1))).responses[0].partitions
    assert (partition.error_code, partition.high_watermark, partition.records) == (0, 3, b"")
