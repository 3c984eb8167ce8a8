"""While batches are validated in a thread, nothing overtakes them, and nobody waits for ever."""

import asyncio
import gc
import threading
from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.log_validator import AT_ONCE
from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions
from quorate.broker.replication.api import ProduceEntry, ProduceOutcome
from quorate.broker.replication.serving import validation_queue
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.record_batches import CODECS, Record, assemble, encode_batch

LZ4 = CODECS["lz4"]
LARGE = bytes(range(256)) * (AT_ONCE.buffer_bytes // 256)


def sent(value: bytes, codec: str = "none", producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    return encode_batch([Record(0, value=value)], codec=codec, producer=producer)


async def lead(broker: BrokerReplicas, *topics: str, codec: int | None = LZ4) -> None:
    broker.limits.stored = TopicStorageOptions(codec=codec)
    for topic in topics:
        await broker.lead(topic, isr=(1,), replicas=(1,))


class Gate:
    """The work stands still until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.jobs: list[int] = []
        """How many entries were validated in each go of a thread."""
        really = validation_queue._validated_all

        def gated(validator: Any, taken: Any, now_ms: int) -> Any:  # noqa: ANN401
            self.jobs.append(len(taken))
            assert self.opened.wait(30)
            return really(validator, taken, now_ms)

        monkeypatch.setattr(validation_queue, "_validated_all", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def producing(broker: BrokerReplicas, topic: str, records: bytes) -> "asyncio.Task[ProduceOutcome]":
    return asyncio.ensure_future(broker.produce(topic, records, acks=0))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def codecs_of(broker: BrokerReplicas, topic: str) -> list[int]:
    batches = broker.store.logs[broker.hosted(topic).tip].batches
    return [read_header(data).compression for _, _, data in batches]


async def test_batches_are_stored_with_the_topics_codec(broker: BrokerReplicas) -> None:
    await lead(broker, "orders")
    for number, codec in enumerate(CODECS):
        outcome = await broker.produce("orders", sent(b"x", codec), acks=0)
        assert (outcome.error_code, outcome.base_offset) == (errors_pb2.NONE, number)
    assert codecs_of(broker, "orders") == [LZ4] * len(CODECS)


@pytest.mark.parametrize(
    ("codec", "first"),
    [(LZ4, sent(b"x", producer=(7, 0, 0))), (None, sent(LARGE, "zstd", producer=(7, 0, 0)))],
    ids=["compressed anew", "decompressed"],
)
async def test_who_comes_later_waits_in_the_same_partition_only(
    broker: BrokerReplicas, gate: Gate, codec: int | None, first: bytes
) -> None:
    await lead(broker, "orders", "others", codec=codec)
    before = producing(broker, "orders", first)
    await turns()
    second = producing(broker, "orders", sent(b"x", "lz4", producer=(7, 0, 1)))
    elsewhere = producing(broker, "others", sent(b"x", "lz4"))
    assert (await elsewhere).base_offset == 0
    await turns()
    assert not second.done()
    gate.opened.set()
    assert [(await before).base_offset, (await second).base_offset] == [0, 1]


async def test_a_thread_takes_the_partitions_of_a_request_together(
    broker: BrokerReplicas, gate: Gate
) -> None:
    topics = [f"t{number}" for number in range(9)]
    await lead(broker, *topics, codec=None)
    entries = [
        ProduceEntry(TopicPartition(topic, 0), sent(LARGE, "lz4"))
        for topic in topics
        for _ in range(2)
    ]
    gate.opened.set()
    outcomes = await broker.manager.produce(entries, 0, 1_000)
    assert [outcome.base_offset for outcome in outcomes] == [0, 1] * 9
    assert gate.jobs == [18]


async def test_what_one_thread_has_no_room_for_another_takes(
    broker: BrokerReplicas, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation_queue, "TAKEN_BYTES", 1)
    await lead(broker, "a", "b", "c", codec=None)
    tasks = [producing(broker, topic, sent(LARGE, "lz4")) for topic in ("a", "b", "c", "a")]
    await turns()
    assert len(gate.jobs) <= validation_queue.THREADS
    gate.opened.set()
    assert [(await task).base_offset for task in tasks] == [0, 0, 0, 1]
    assert gate.jobs == [1] * 4


async def test_the_event_loop_appends_few_entries_in_one_go(
    broker: BrokerReplicas, gate: Gate
) -> None:
    await lead(broker, "orders", "others")
    gate.opened.set()
    many = [
        ProduceEntry(TopicPartition(topic, 0), sent(b"x"))
        for topic in ("orders", "others")
        for _ in range(200)
    ]
    outcomes = await broker.manager.produce(many, 0, 1_000)
    assert [outcome.base_offset for outcome in outcomes] == [*range(200)] * 2
    assert max(gate.jobs) == validation_queue.TAKEN_ENTRIES


async def test_large_requests_append_more_while_few_entries_wait(
    broker: BrokerReplicas, gate: Gate
) -> None:
    await lead(broker, "orders")
    many = [ProduceEntry(TopicPartition("orders", 0), sent(b"x"))] * validation_queue.FEW_ENTRIES
    first = asyncio.ensure_future(broker.manager.produce(many, 0, 1_000))
    await turns()
    await asyncio.wait_for(broker.manager.wait_for_turn(), 1)
    one_more = producing(broker, "orders", sent(b"x"))
    await turns()
    waiting = asyncio.ensure_future(broker.manager.wait_for_turn())
    await turns()
    assert not waiting.done()
    gate.opened.set()
    await asyncio.wait_for(waiting, 30)
    assert not one_more.done(), "it waits until there is room, not until all is done"
    assert (await one_more).base_offset == len(many)
    await first


async def test_large_requests_append_more_while_few_batches_wait_for_the_disk(
    broker: BrokerReplicas,
) -> None:
    broker.store.is_crowded = True
    waiting = asyncio.ensure_future(broker.manager.wait_for_turn())
    await turns()
    assert not waiting.done()
    broker.store.is_crowded = False
    broker.store.turns.go_on()
    await asyncio.wait_for(waiting, 1)


async def test_a_retry_finds_its_original(broker: BrokerReplicas) -> None:
    await lead(broker, "orders")
    for _ in range(2):
        outcome = await broker.produce("orders", sent(b"x", producer=(7, 0, 0)), acks=0)
        assert (outcome.error_code, outcome.base_offset) == (errors_pb2.NONE, 0)
    assert broker.hosted("orders").log.log_end_offset == 1


@pytest.mark.parametrize("codec", [LZ4, None])
async def test_what_is_refused_holds_up_nobody(broker: BrokerReplicas, codec: int | None) -> None:
    await lead(broker, "orders", codec=codec)
    junk = b"junk" * AT_ONCE.compressed_bytes
    broken = assemble(junk, base_offset=0, last_delta=0, count=1, attributes=CODECS["gzip"])
    refused = producing(broker, "orders", broken)
    taken = producing(broker, "orders", sent(b"x"))
    assert (await refused).error_code == errors_pb2.INVALID_RECORD
    assert (await taken).base_offset == 0


@pytest.mark.parametrize("size", [1, AT_ONCE.buffer_bytes])
async def test_the_records_that_are_refused_are_named(broker: BrokerReplicas, size: int) -> None:
    await lead(broker, "orders", codec=None)
    broker.hosted("orders").log.needs_keys = True
    records = [Record(0, key=b"k", value=bytes(size)), Record(1)]
    outcome = await broker.produce("orders", encode_batch(records, codec="zstd"), acks=0)
    assert outcome.error_code == errors_pb2.INVALID_RECORD
    assert [found.place for found in outcome.record_errors] == [1]
    assert outcome.base_offset == -1


@pytest.mark.parametrize("codec", [None, LZ4], ids=["at once", "in a thread"])
async def test_the_memory_of_a_refused_request_is_free_at_once(
    broker: BrokerReplicas, codec: int | None
) -> None:
    """A traceback would hold the frames of the request until the garbage collector comes by."""
    await lead(broker, "orders", codec=codec)
    junk = assemble(b"junk", base_offset=0, last_delta=0, count=1)
    gc.collect()
    gc.disable()
    try:
        assert (await broker.produce("orders", junk, acks=0)).error_code != errors_pb2.NONE
        await turns()
        assert not [one for one in gc.get_objects() if has_traceback(one)]
    finally:
        gc.enable()


def has_traceback(one: object) -> bool:
    return isinstance(one, KafkaError) and one.__traceback__ is not None


async def test_invalid_records_are_refused_before_a_retry_is_answered(
    broker: BrokerReplicas,
) -> None:
    await lead(broker, "orders", codec=None)
    assert (await broker.produce("orders", sent(b"x", producer=(7, 0, 0)), acks=0)).base_offset == 0
    junk = assemble(b"junk", base_offset=0, last_delta=0, count=1, producer=(7, 0, 0))
    assert (await broker.produce("orders", junk, acks=0)).error_code == errors_pb2.INVALID_RECORD


async def test_what_is_wrong_with_us_is_not_the_producers_fault(
    broker: BrokerReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead(broker, "orders")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(validation_queue, "recompressed", fail)
    outcome = await broker.produce("orders", sent(b"x"), acks=0)
    assert outcome.error_code == errors_pb2.UNKNOWN_SERVER_ERROR


async def test_c12_a_leader_that_was_deposed_meanwhile_appends_nothing(
    broker: BrokerReplicas, gate: Gate
) -> None:
    await lead(broker, "orders")
    held = producing(broker, "orders", sent(b"x"))
    await turns()
    await broker.command("orders", leader=2, epoch=1, version=1, replicas=(1, 2))
    gate.opened.set()
    assert (await held).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert broker.hosted("orders").log.log_end_offset == 0


async def test_whoever_waits_when_the_broker_stops_is_answered(
    broker: BrokerReplicas, gate: Gate
) -> None:
    await lead(broker, "orders")
    held = [producing(broker, "orders", sent(b"x")) for _ in range(2)]
    await turns()
    closing = asyncio.ensure_future(broker.manager._appender.close())
    await turns()
    gate.opened.set()
    await closing
    for each in held:
        assert (await each).error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_little_work_is_not_held(broker: BrokerReplicas, gate: Gate) -> None:
    await lead(broker, "orders", codec=None)
    assert (await broker.produce("orders", sent(b"x", "gzip"), acks=0)).base_offset == 0
    assert (await broker.produce("orders", sent(LARGE), acks=0)).base_offset == 1
    assert codecs_of(broker, "orders") == [CODECS["gzip"], CODECS["none"]]
    assert not gate.jobs
