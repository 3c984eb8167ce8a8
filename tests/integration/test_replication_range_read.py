"""``RangeRead`` over a real connection: exactly the batches of a range, and errors that say why."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.api import ACKS_ALL, MarkerEntry, ProduceEntry
from quorate.broker.replication.frames import unpack_frame
from quorate.broker.rpc.peer_channels import GRPC_OPTIONS
from quorate.common.types import TopicPartition
from quorate_proto.v1 import control_pb2, errors_pb2, metadata_pb2, replication_pb2
from tests.support.record_batches import TRANSACTIONAL, Record, encode_batch
from tests.support.replica_cluster import RANGE_BYTES, ReplicaCluster, batch
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration

ORDERS = TopicPartition("orders", 0)
Frame = tuple[replication_pb2.RangeHeader, bytes]


class RangeReader:
    """A reader connected to broker 1."""

    def __init__(self, channel: grpc.aio.Channel, cluster: ReplicaCluster) -> None:
        self.channel = channel
        self.cluster = cluster

    async def read(
        self,
        start: int,
        end: int,
        *,
        topic: str = "orders",
        topic_id: bytes = b"",
        frame: int = 0,
        isolation: int = 0,
        from_follower: bool = False,
        epoch: int = 0,
        offsets_only: bool = False,
    ) -> list[Frame]:
        request = replication_pb2.RangeReadRequest(
            topic=topic,
            topic_id=topic_id,
            start_offset=start,
            end_offset=end,
            max_frame_bytes=frame,
            isolation_level=isolation,
            from_follower=from_follower,
            current_leader_epoch=epoch,
            offsets_only=offsets_only,
        )
        read: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(
            "/quorate.v1.RangeRead/Read"
        )
        call = read(request.SerializeToString())
        frames = []
        async for raw in call:
            header, records = unpack_frame(raw)
            frames.append((replication_pb2.RangeHeader.FromString(header), bytes(records)))
        return frames

    async def latest(self, isolation: int = 0) -> int:
        """Where orders-0 ends for such a reader."""
        query = replication_pb2.OffsetQuery(topic="orders", timestamp_ms=-1)
        list_offsets = self.channel.unary_unary(
            "/quorate.v1.RangeRead/ListOffsets",
            request_serializer=replication_pb2.ListOffsetsRequest.SerializeToString,
            response_deserializer=replication_pb2.ListOffsetsResponse.FromString,
        )
        request = replication_pb2.ListOffsetsRequest(queries=[query], isolation_level=isolation)
        (answer,) = (await list_offsets(request)).answers
        return answer.offset

    async def refused(
        self, start: int, end: int, **where: str | int
    ) -> replication_pb2.RangeHeader:
        """The header of the last frame, which is an error."""
        frames = await self.read(start, end, **where)  # type: ignore[arg-type]
        header, records = frames[-1]
        assert header.error_code != errors_pb2.NONE
        assert not records
        return header


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[RangeReader]:
    """Brokers 1 and 2; broker 1 leads ``orders`` with ten records, one per batch."""
    async with ReplicaCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic("orders", (1, 2))
        await cluster.create_topic("bills", (2, 1))
        await cluster.nodes[1].produce("orders", *[batch(str(number)) for number in range(10)])
        _update_metadata(cluster)
        address = str(cluster.nodes[1].endpoint)
        async with grpc.aio.insecure_channel(address, options=GRPC_OPTIONS) as channel:
            yield RangeReader(channel, cluster)


def _update_metadata(cluster: ReplicaCluster) -> None:
    """What the controller would tell broker 1 for its clients."""
    image = cluster.quorum.image
    request = control_pb2.UpdateMetadataRequest(
        header=control_pb2.ControlHeader(controller_id=2, metadata_offset=image.offset), full=True
    )
    for node in cluster.nodes.values():
        endpoint = metadata_pb2.Endpoint(host=node.endpoint.host, port=node.endpoint.port)
        request.brokers.add(
            broker_id=node.broker_id, broker_epoch=7, kafka=endpoint, grpc=endpoint, rack="r1"
        )
    for topic in image.topics.values():
        told = request.topics.add(topic=topic.name, topic_id=topic.topic_id)
        for leaf in topic.partitions:
            told.leaders.append(leaf.leader)
            told.leader_epochs.append(leaf.leader_epoch)
            told.replica_counts.append(len(leaf.replicas))
            told.replicas.extend(leaf.replicas)
            absent = set(leaf.replicas).difference(leaf.isr)
            told.absent_counts.append(len(absent))
            told.absent.extend(absent)
    cluster.nodes[1].cache.update(request)


async def test_d2_a_range_is_read_as_whole_batches_in_frames(reader: RangeReader) -> None:
    log = reader.cluster.nodes[1].hosted("orders").log
    stored = b"".join(log.read(3, 1 << 20, 8).chunks)
    (frame,) = await reader.read(3, 8)
    assert frame[1] == stored, "nothing beyond the range is sent"
    assert frame[0].high_watermark == 10
    small = await reader.read(3, 8, frame=1)
    assert len(small) == 5, "at least one batch per frame"
    assert b"".join(records for _, records in small) == stored


async def test_d2_who_wants_only_offsets_gets_no_records_of_batches_without_gaps(
    reader: RangeReader,
) -> None:
    (frame,) = await reader.read(3, 8, offsets_only=True)
    assert (frame[0].run_start, frame[0].run_end, frame[1]) == (3, 8, b"")
    assert frame[0].high_watermark == 10
    small = await reader.read(3, 8, frame=1, offsets_only=True)
    assert [(header.run_start, header.run_end) for header, _ in small] == [
        (offset, offset + 1) for offset in range(3, 8)
    ]

    node = reader.cluster.nodes[1]
    sent = encode_batch([Record(0)], attributes=TRANSACTIONAL, producer=(7, 0, 0))
    entry = ProduceEntry(ORDERS, sent, AppendOrigin.TRANSACTIONAL_CLIENT)
    (outcome,) = await node.manager.produce([entry], ACKS_ALL, 10_000)
    assert outcome.error_code == errors_pb2.NONE
    run, transactional = await reader.read(0, 11, offsets_only=True)
    assert (run[0].run_start, run[0].run_end) == (0, 10)
    assert transactional[0].run_end == 0
    assert transactional[1] == b"".join(node.hosted("orders").log.read(10, 1 << 20, 11).chunks)


async def test_frames_of_ranges_hold_memory_until_they_are_sent(reader: RangeReader) -> None:
    memory = reader.cluster.nodes[1].range_memory
    memory.change(RANGE_BYTES)
    reading = asyncio.ensure_future(reader.read(0, 10, frame=1))
    await async_wait_until(lambda: memory.is_waited_for, "somebody to wait for memory")
    assert not reading.done()
    memory.change(-RANGE_BYTES)
    assert len(await reading) == 10
    await async_wait_until(lambda: not memory.held_bytes, "all memory to be free")


async def test_a_reader_that_leaves_holds_nothing(reader: RangeReader) -> None:
    memory = reader.cluster.nodes[1].range_memory
    memory.change(RANGE_BYTES)
    reading = asyncio.ensure_future(reader.read(0, 10, frame=1))
    await async_wait_until(lambda: memory.is_waited_for, "somebody to wait for memory")
    reading.cancel()
    await async_wait_until(lambda: not memory.is_waited_for, "nobody to wait for memory")
    assert memory.held_bytes == RANGE_BYTES


async def test_d2_an_empty_range_has_no_frames(reader: RangeReader) -> None:
    assert await reader.read(10, 10) == []


@pytest.mark.parametrize(("start", "end"), [(5, 11), (-1, 5), (20, 30)])
async def test_d2_a_range_outside_the_log_names_partition_and_what_is_there(
    reader: RangeReader, start: int, end: int
) -> None:
    header = await reader.refused(start, end)
    assert header.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    assert "orders-0" in header.error_message
    assert "[0, 10)" in header.error_message
    assert (header.log_start_offset, header.high_watermark) == (0, 10)


async def test_d2_what_is_not_committed_is_not_read(reader: RangeReader) -> None:
    await reader.cluster.stop(2)
    node = reader.cluster.nodes[1]
    await node.produce("orders", batch("not committed"), acks=1)
    header = await reader.refused(0, 11)
    assert header.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    assert header.high_watermark == 10


async def test_d2_what_was_aborted_is_told_and_what_is_open_is_not_read(
    reader: RangeReader,
) -> None:
    node = reader.cluster.nodes[1]
    aborted, still_open = 7, 8
    for producer_id in (aborted, still_open):
        sent = encode_batch([Record(0)], attributes=TRANSACTIONAL, producer=(producer_id, 0, 0))
        entry = ProduceEntry(ORDERS, sent, AppendOrigin.TRANSACTIONAL_CLIENT)
        (outcome,) = await node.manager.produce([entry], ACKS_ALL, 10_000)
        assert outcome.error_code == errors_pb2.NONE
    marker = EndMarker(aborted, 0, committed=False, coordinator_epoch=0)
    assert await node.manager.write_markers([MarkerEntry(ORDERS, marker)], 10_000) == [0]

    header = await reader.refused(0, 12, isolation=1)
    assert header.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    assert "[0, 11)" in header.error_message, "a transaction is open from offset 11 on"
    assert await reader.latest() == 13
    assert await reader.latest(isolation=1) == 11

    (frame,) = await reader.read(0, 11, isolation=1)
    (told,) = frame[0].aborted
    assert (told.producer_id, told.first_offset, told.last_offset) == (aborted, 10, 12)
    (before,) = await reader.read(0, 10, isolation=1)
    assert not before[0].aborted
    (everything,) = await reader.read(0, 13)
    assert not everything[0].aborted
    assert everything[0].high_watermark == 13


async def test_d2_a_new_leader_asks_to_try_again(reader: RangeReader) -> None:
    await reader.cluster.stop(2)
    await reader.cluster.elect("orders", 1, isr=(1, 2))
    hosted = reader.cluster.nodes[1].hosted("orders")
    hosted.replica.high_watermark = 4
    header = await reader.refused(0, 10)
    assert header.error_code == errors_pb2.OFFSET_NOT_AVAILABLE


async def test_d2_a_non_leader_names_the_leader(reader: RangeReader) -> None:
    header = await reader.refused(0, 1, topic="bills")
    assert header.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
    assert header.leader == 2


async def test_d2_a_follower_serves_who_does_not_reach_the_leader(reader: RangeReader) -> None:
    """The same batches, and which transactions were aborted; only what is committed."""
    bills = TopicPartition("bills", 0)
    leader, follower = reader.cluster.nodes[2], reader.cluster.nodes[1].hosted("bills")
    await leader.produce("bills", *[batch(str(number)) for number in range(5)])
    sent = encode_batch([Record(0)], attributes=TRANSACTIONAL, producer=(7, 0, 0))
    entry = ProduceEntry(bills, sent, AppendOrigin.TRANSACTIONAL_CLIENT)
    (outcome,) = await leader.manager.produce([entry], ACKS_ALL, 10_000)
    assert outcome.error_code == errors_pb2.NONE
    marker = EndMarker(7, 0, committed=False, coordinator_epoch=0)
    assert await leader.manager.write_markers([MarkerEntry(bills, marker)], 10_000) == [0]
    await async_wait_until(lambda: follower.replica.high_watermark == 7, "the follower to know it")

    (frame,) = await reader.read(0, 7, topic="bills", isolation=1, from_follower=True)
    assert frame[1] == b"".join(leader.hosted("bills").log.read(0, 1 << 20, 7).chunks)
    (told,) = frame[0].aborted
    assert (told.producer_id, told.first_offset, told.last_offset) == (7, 5, 6)

    header = await reader.refused(0, 8, topic="bills", from_follower=True)
    assert header.error_code == errors_pb2.OFFSET_NOT_AVAILABLE, "only the leader may say: a loss"
    follower.replica.high_watermark = 4
    header = await reader.refused(0, 7, topic="bills", from_follower=True)
    assert header.error_code == errors_pb2.OFFSET_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("knows", "error_code"),
    [(0, errors_pb2.FENCED_LEADER_EPOCH), (2, errors_pb2.UNKNOWN_LEADER_EPOCH)],
)
async def test_d2_a_follower_of_another_leader_serves_nothing(
    reader: RangeReader, knows: int, error_code: int
) -> None:
    """Its log may hold what the leader that the reader means has never had."""
    await reader.cluster.nodes[2].produce("bills", batch("one"))
    await reader.cluster.elect("bills", 2, isr=(1, 2))
    follower = reader.cluster.nodes[1].hosted("bills").replica
    await async_wait_until(lambda: follower.high_watermark == 1, "the follower to know it")
    assert follower.leader_epoch == 1
    assert await reader.read(0, 1, topic="bills", from_follower=True, epoch=1)
    header = await reader.refused(0, 1, topic="bills", from_follower=True, epoch=knows)
    assert header.error_code == error_code


async def test_d2_an_unknown_topic_and_a_re_created_one_are_told(reader: RangeReader) -> None:
    header = await reader.refused(0, 1, topic="nowhere")
    assert header.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    other = await reader.read(0, 1, topic_id=b"of another topic")
    assert other[-1][0].error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert await reader.read(0, 1, topic_id=reader.cluster.topic_id("orders"))


async def test_d2_topics_leaders_and_brokers_are_described(reader: RangeReader) -> None:
    describe = reader.channel.unary_unary(
        "/quorate.v1.RangeRead/DescribeTopics",
        request_serializer=replication_pb2.DescribeTopicsRequest.SerializeToString,
        response_deserializer=replication_pb2.DescribeTopicsResponse.FromString,
    )
    response = await describe(replication_pb2.DescribeTopicsRequest(topics=["orders", "nowhere"]))
    orders, nowhere = response.topics
    assert orders.partitions[0].leader == 1
    assert list(orders.partitions[0].replicas) == [1, 2]
    assert nowhere.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    assert {b.broker_id: b.broker_epoch for b in response.brokers} == {1: 7, 2: 7}
    assert response.controller_id == 2
    everything = await describe(replication_pb2.DescribeTopicsRequest(all=True))
    assert [topic.topic for topic in everything.topics] == ["bills", "orders"]


async def test_c19_a_broker_that_was_told_nothing_says_nothing(reader: RangeReader) -> None:
    """It has just started: "no such topic" would be wrong, and so would "no topics"."""
    describe = reader.channel.unary_unary(
        "/quorate.v1.RangeRead/DescribeTopics",
        request_serializer=replication_pb2.DescribeTopicsRequest.SerializeToString,
        response_deserializer=replication_pb2.DescribeTopicsResponse.FromString,
    )
    reader.cluster.nodes[1].cache.brokers = {}
    for request in (
        replication_pb2.DescribeTopicsRequest(topics=["orders"]),
        replication_pb2.DescribeTopicsRequest(all=True),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await describe(request)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_d2_offsets_come_from_the_leader_alone(reader: RangeReader) -> None:
    list_offsets = reader.channel.unary_unary(
        "/quorate.v1.RangeRead/ListOffsets",
        request_serializer=replication_pb2.ListOffsetsRequest.SerializeToString,
        response_deserializer=replication_pb2.ListOffsetsResponse.FromString,
    )
    request = replication_pb2.ListOffsetsRequest()
    for topic, timestamp_ms in (("orders", -1), ("orders", -2), ("bills", -1)):
        request.queries.add(topic=topic, timestamp_ms=timestamp_ms)
    latest, earliest, elsewhere = (await list_offsets(request)).answers
    assert (latest.offset, earliest.offset) == (10, 0)
    assert elsewhere.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER
