"""``RangeWrite`` over a real connection: appended in order, answered when committed, or refused."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc.aio
import pytest

from quorate.broker.replication.frames import pack_frame
from quorate.broker.replication.services import range_write_service as range_write
from quorate.broker.rpc.peer_channels import GRPC_OPTIONS
from quorate_proto.v1 import errors_pb2
from quorate_proto.v1.replication_pb2 import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    RangeWriteRequest,
    RangeWriteResponse,
    WriteOutcome,
    WrittenPartition,
)
from tests.support.log_stores import batch as numbered_batch
from tests.support.replica_cluster import ReplicaCluster, batch
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

Part = tuple[str, bytes]
"""Topic and batches for its partition 0."""


def frame(number: int, *parts: Part, topic_id: bytes = b"", timeout_ms: int = 10_000) -> bytes:
    header = RangeWriteRequest(
        request_id=number,
        timeout_ms=timeout_ms,
        partitions=[
            WrittenPartition(topic=topic, topic_id=topic_id, records_size=len(records))
            for topic, records in parts
        ],
    )
    return pack_frame(header.SerializeToString(), [records for _, records in parts])


class Writer:
    """Connected to broker 1."""

    def __init__(self, channel: grpc.aio.Channel, cluster: ReplicaCluster) -> None:
        self.channel = channel
        self.cluster = cluster

    def open(self) -> "grpc.aio.StreamStreamCall[bytes, bytes]":
        write: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self.channel.stream_stream(
            "/quorate.v1.RangeWrite/Write"
        )
        return write()

    async def write(self, *frames: bytes) -> dict[int, list[WriteOutcome]]:
        """What is answered to frames that are sent at once."""
        call = self.open()
        for one in frames:
            await call.write(one)
        await call.done_writing()
        answers = [RangeWriteResponse.FromString(answer) async for answer in call]
        assert len(answers) == len(frames)
        return {answer.request_id: list(answer.outcomes) for answer in answers}

    async def refused(self, *frames: bytes) -> WriteOutcome:
        """The only outcome, which is an error."""
        ((outcome,),) = (await self.write(*frames)).values()
        assert outcome.error_code
        assert outcome.base_offset == -1
        return outcome

    def values(self, topic: str) -> bytes:
        return self.cluster.nodes[1].log_bytes(topic)


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    """Brokers 1 and 2; broker 1 leads ``orders`` and ``alone``, broker 2 leads ``bills``."""
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic("orders", (1, 2))
        await cluster.create_topic("alone", (1,))
        await cluster.create_topic("bills", (2, 1))
        address = str(cluster.nodes[1].endpoint)
        async with grpc.aio.insecure_channel(address, options=GRPC_OPTIONS) as channel:
            yield Writer(channel, cluster)


def numbers_in(records: bytes, numbers: Sequence[int]) -> list[int]:
    """The numbers in the order in which ``number N;`` stands in the log."""
    return sorted(numbers, key=lambda number: records.index(f"number {number};".encode()))


async def test_c12_frames_are_appended_in_order_and_answered_once_committed(writer: Writer) -> None:
    frames = [
        frame(n, ("orders", batch(f"number {n};", "more")), ("alone", batch(f"number {n};")))
        for n in range(20)
    ]
    answers = await writer.write(*frames)
    for n in range(20):
        assert [(one.error_code, one.base_offset) for one in answers[n]] == [(0, 2 * n), (0, n)]
    assert writer.cluster.nodes[1].hosted("orders").replica.high_watermark == 40
    for topic in ("orders", "alone"):
        assert numbers_in(writer.values(topic), range(20)) == list(range(20))
    await writer.cluster.settled("orders", 1, 2)


async def test_kip_98_what_is_sent_again_after_a_cut_is_stored_once(writer: Writer) -> None:
    log = writer.cluster.nodes[1].hosted("orders").log
    first, second = (numbered_batch(2, producer=(7, 0, sequence)) for sequence in (0, 2))
    call = writer.open()
    await call.write(frame(1, ("orders", first)))
    await async_wait_until(lambda: log.log_end_offset == 2, "both records in the log")
    call.cancel()
    await writer.write(frame(2, ("orders", batch("somebody else's"))))
    answers = await writer.write(frame(3, ("orders", first + second)), frame(4, ("orders", second)))
    assert [(one.error_code, one.base_offset) for one in answers[3] + answers[4]] == [
        (0, 0),
        (0, 3),
    ]
    assert log.log_end_offset == 5
    assert writer.cluster.nodes[1].hosted("orders").replica.high_watermark == 5


async def test_what_is_refused_does_not_keep_the_rest_of_a_frame_out(writer: Writer) -> None:
    corrupt = batch("one")[:-1] + b"?"
    ((bad, elsewhere, unknown, good),) = (
        await writer.write(
            frame(
                1, ("orders", corrupt), ("bills", batch("b")), ("none", batch("n")),
                ("alone", batch("a")),
            )
        )
    ).values()  # fmt: skip
    assert bad.error_code == errors_pb2.CORRUPT_MESSAGE
    assert elsewhere.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert (good.error_code, good.base_offset) == (0, 0)
    assert "orders-0" in bad.error_message


async def test_a_re_created_topic_is_told(writer: Writer) -> None:
    refused = await writer.refused(frame(1, ("orders", batch("x")), topic_id=b"of another topic"))
    assert refused.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert "re-created" in refused.error_message
    own = writer.cluster.topic_id("orders")
    ((written,),) = (await writer.write(frame(1, ("orders", batch("x")), topic_id=own))).values()
    assert written.error_code == 0


async def test_c12_what_is_not_committed_in_time_is_told_so(writer: Writer) -> None:
    await writer.cluster.stop(2)
    late = await writer.refused(frame(1, ("orders", batch("x")), timeout_ms=50))
    assert late.error_code == errors_pb2.REQUEST_TIMED_OUT


async def test_answers_overtake_what_waits_for_a_replica(writer: Writer) -> None:
    await writer.cluster.stop(2)
    call = writer.open()
    await call.write(frame(1, ("orders", batch("waits")), timeout_ms=60_000))
    await call.write(frame(2, ("alone", batch("goes"))))
    answer = await call.read()
    assert isinstance(answer, bytes)
    assert RangeWriteResponse.FromString(answer).request_id == 2
    call.cancel()


async def test_a_stream_takes_a_bounded_number_of_bytes(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_write, "STREAM_BYTES_MAX", 1000)
    await writer.cluster.stop(2)
    call = writer.open()
    for n in range(20):
        await call.write(frame(n, ("orders", batch("x" * 400)), timeout_ms=60_000))
    await call.write(frame(99, ("alone", batch("behind them"))))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call.read(), 0.3)
    assert writer.cluster.nodes[1].hosted("orders").log.log_end_offset < 4
    assert writer.cluster.nodes[1].hosted("alone").log.log_end_offset == 0
    call.cancel()


@pytest.mark.parametrize(
    "malformed",
    [
        b"\0\0",
        pack_frame(b"no message at all"),
        frame(1, ("orders", b"abc")) + b"one byte too many"[:1],
        frame(1, ("orders", b"abc"))[:-1],
    ],
)
async def test_a_malformed_frame_ends_the_stream(writer: Writer, malformed: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await writer.write(malformed)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert writer.cluster.nodes[1].hosted("orders").log.log_end_offset == 0


async def test_producer_ids_are_not_given_twice(writer: Writer) -> None:
    init = writer.channel.unary_unary(
        "/quorate.v1.RangeWrite/InitProducerId",
        request_serializer=InitProducerIdRequest.SerializeToString,
        response_deserializer=InitProducerIdResponse.FromString,
    )
    first, second = [await init(InitProducerIdRequest()) for _ in range(2)]
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id
