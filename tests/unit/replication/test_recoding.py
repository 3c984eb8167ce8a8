"""While batches are compressed anew, nothing overtakes them, and nobody waits for ever."""

import asyncio
import threading
from typing import Any

import pytest

from quorate.broker.log.batches.recompression import recompressed
from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.batches.topic_timestamps import TopicStorageOptions
from quorate.broker.log.options import Records
from quorate.broker.replication.api import ProduceOutcome
from quorate.broker.replication.serving import recompression_queue as recoding
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.record_batches import CODECS, Record, assemble, encode_batch

LZ4 = CODECS["lz4"]


def sent(value: bytes, codec: str = "none", producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    return encode_batch([Record(0, value=value)], codec=codec, producer=producer)


async def lead(broker: BrokerReplicas, *topics: str) -> None:
    broker.limits.stored = TopicStorageOptions(codec=LZ4)
    for topic in topics:
        await broker.lead(topic, isr=(1,), replicas=(1,))


class Gate:
    """The work stands still until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()

        def gated(*args: Any) -> Records:  # noqa: ANN401 - those of recoded
            assert self.opened.wait(30)
            return recompressed(*args)

        monkeypatch.setattr(recoding, "recompressed", gated)


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


async def test_who_comes_later_waits_in_the_same_partition_only(
    broker: BrokerReplicas, gate: Gate
) -> None:
    await lead(broker, "orders", "others")
    first = producing(broker, "orders", sent(b"x", producer=(7, 0, 0)))
    await turns()
    second = producing(broker, "orders", sent(b"x", "lz4", producer=(7, 0, 1)))
    elsewhere = producing(broker, "others", sent(b"x", "lz4"))
    assert (await elsewhere).base_offset == 0
    await turns()
    assert not second.done()
    gate.opened.set()
    assert [(await first).base_offset, (await second).base_offset] == [0, 1]


async def test_a_retry_finds_its_original(broker: BrokerReplicas) -> None:
    await lead(broker, "orders")
    for _ in range(2):
        outcome = await broker.produce("orders", sent(b"x", producer=(7, 0, 0)), acks=0)
        assert (outcome.error_code, outcome.base_offset) == (errors_pb2.NONE, 0)
    assert broker.hosted("orders").log.log_end_offset == 1


async def test_what_cannot_be_decompressed_is_refused_and_holds_up_nobody(
    broker: BrokerReplicas,
) -> None:
    await lead(broker, "orders")
    broken = assemble(b"junk", base_offset=0, last_delta=0, count=1, attributes=CODECS["gzip"])
    refused = producing(broker, "orders", broken)
    taken = producing(broker, "orders", sent(b"x"))
    assert (await refused).error_code == errors_pb2.INVALID_RECORD
    assert (await taken).base_offset == 0


async def test_what_is_wrong_with_us_is_not_the_producers_fault(
    broker: BrokerReplicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lead(broker, "orders")

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(recoding, "recompressed", fail)
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


async def test_without_a_codec_of_the_topics_nothing_is_held(
    broker: BrokerReplicas, gate: Gate
) -> None:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    assert (await broker.produce("orders", sent(b"x", "gzip"), acks=0)).base_offset == 0
    assert codecs_of(broker, "orders") == [CODECS["gzip"]]
    assert not gate.opened.is_set()
