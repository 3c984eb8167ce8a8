"""The leader's side of a follower's stream: news alone, and nothing that is not durable (C12)."""

import asyncio

import pytest

from quorate.broker.replication.frames import MalformedFrame, pack_frame, unpack_frame
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.broker.replication.serving.replica_fetch_session import WrongSender
from quorate.common.types import BrokerId
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas, FollowerStream
from tests.support.replica_cluster import batch
from tests.unit.replication.test_produce import settle


async def leading(broker: BrokerReplicas, *topics: str) -> FollowerStream:
    """Broker 1 leads, broker 2 has a stream with a position in each topic."""
    stream = broker.follower(2)
    for topic in topics:
        await broker.lead(topic, isr=(1, 2), replicas=(1, 2))
        stream.send(topic, ack_only=True)
    return stream


async def append(broker: BrokerReplicas, topic: str, value: str = "a") -> bytes:
    """Append one batch, not flushed yet; its bytes as stored."""
    await broker.produce(topic, batch(value), acks=0)
    return broker.store.logs[broker.hosted(topic).tip].batches[-1][2]


async def test_c12_a_follower_is_served_only_what_is_durable_at_its_leader(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders")
    stored = await append(broker, "orders")
    stream.send("orders")
    assert not stream.has_news()
    broker.store.flush()
    assert stream.has_news()
    (partition,), records = stream.receive()
    assert records == stored
    assert partition.leader_epoch == 0


async def test_c12_what_is_durable_comes_without_what_is_not_yet(broker: BrokerReplicas) -> None:
    stream = await leading(broker, "orders")
    stored = await append(broker, "orders", "durable")
    broker.store.flush()
    await append(broker, "orders", "not yet")
    stream.send("orders")
    assert stream.receive()[1] == stored


async def test_c12_only_partitions_with_news_are_in_a_response(broker: BrokerReplicas) -> None:
    stream = await leading(broker, "orders", "bills", "carts")
    stream.send()
    stream.receive()
    await append(broker, "bills")
    broker.store.flush()
    stream.send()
    (partition,), _ = stream.receive()
    assert partition.tip.topic_id == broker.hosted("bills").tip.topic_id


async def test_c12_data_is_sent_once_until_the_follower_says_that_it_has_it(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders")
    await append(broker, "orders", "first")
    broker.store.flush()
    stream.send()
    stream.receive()
    second = await append(broker, "orders", "second")
    broker.store.flush()
    stream.send()
    assert not stream.has_news()
    stream.send("orders", fetch=0, flushed=0, ack_only=True)
    assert not stream.has_news(), "a repeated position acknowledges durability alone"
    stream.send("orders", fetch=1, flushed=0)
    assert stream.receive()[1] == second


async def test_c12_after_forget_a_position_counts_anew(broker: BrokerReplicas) -> None:
    stream = await leading(broker, "orders")
    stored = await append(broker, "orders")
    broker.store.flush()
    stream.send()
    stream.receive()
    stream.send("orders", forget=True, ack_only=True)
    stream.send("orders", fetch=0)
    assert stream.receive()[1] == stored


async def test_c12_a_frame_is_capped_and_goes_on_with_the_other_partitions(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders", "bills")
    stream.send()
    stream.receive()
    for topic in ("orders", "bills"):
        await append(broker, topic)
    broker.store.flush()
    topics = []
    for _ in range(2):
        stream.send(max_bytes=1)
        (partition,), records = stream.receive()
        assert len(records) == partition.size > 0, "at least one batch comes"
        topics.append(partition.tip.topic_id)
    assert len(set(topics)) == 2


async def test_old_data_comes_once_it_is_loaded_and_the_rest_at_once(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders", "bills")
    old, new = await append(broker, "orders"), await append(broker, "bills")
    cold = broker.store.logs[broker.hosted("orders").tip]
    cold.until_loaded = asyncio.Event()
    broker.store.flush()
    stream.send("orders")
    assert stream.receive()[1] == new
    stream.send("bills", fetch=1)
    await settle()
    assert not stream.has_news()
    await append(broker, "orders")
    broker.store.flush()
    assert not stream.has_news(), "what is being loaded comes first"
    assert cold.loads == 1
    cold.until_loaded.set()
    await settle()
    assert stream.has_news()
    assert stream.receive()[1].startswith(old)


async def test_what_is_loaded_for_a_stream_that_has_ended_goes_nowhere(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders")
    await append(broker, "orders")
    cold = broker.store.logs[broker.hosted("orders").tip]
    cold.until_loaded = asyncio.Event()
    broker.store.flush()
    stream.send("orders")
    stream.receive()
    await settle()
    stream.session.close()
    cold.until_loaded.set()
    await settle()
    assert not stream.has_news()


async def test_c12_the_watermark_rides_along_and_does_not_end_a_long_poll(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders")
    await append(broker, "orders")
    broker.store.flush()
    stream.send()
    stream.receive()
    stream.send("orders", fetch=1, flushed=1)
    assert broker.hosted("orders").replica.high_watermark == 1
    assert not stream.has_news()
    (partition,), records = stream.receive()
    assert (partition.high_watermark, records) == (1, b"")


async def test_c15_a_new_leader_epoch_refuses_positions_of_the_old_one(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders")
    stream.send()
    stream.receive()
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2), epoch=1, version=1)
    (partition,), _ = stream.receive()
    assert partition.error_code == errors_pb2.FENCED_LEADER_EPOCH
    assert partition.leader_epoch == 1
    assert not broker.hosted("orders").watchers


async def test_c15_a_fetch_in_a_newer_epoch_makes_the_leader_step_down(
    broker: BrokerReplicas,
) -> None:
    stream = await leading(broker, "orders")
    stream.send("orders", epoch=7)
    codes = {partition.error_code for partition in stream.receive()[0]}
    assert errors_pb2.UNKNOWN_LEADER_EPOCH in codes
    assert broker.hosted("orders").replica.role is ReplicaRole.SUSPENDED


async def test_c12_demotion_is_told_to_followers(broker: BrokerReplicas) -> None:
    stream = await leading(broker, "orders")
    stream.send()
    stream.receive()
    await broker.command("orders", leader=2, epoch=1, version=1, isr=(1, 2), replicas=(1, 2))
    (partition,), _ = stream.receive()
    assert partition.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("topic", "replica_id", "offset", "code"),
    [
        ("nowhere", 2, 0, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 9, 0, errors_pb2.REPLICA_NOT_AVAILABLE),
        ("orders", 2, 5, errors_pb2.OFFSET_OUT_OF_RANGE),
        ("orders", 2, -1, errors_pb2.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_c12_a_position_that_cannot_be_served_is_refused_alone(
    broker: BrokerReplicas, topic: str, replica_id: int, offset: int, code: int
) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    stream = broker.follower(replica_id)
    stream.send(topic, fetch=offset, flushed=0)
    assert stream.has_news()
    (partition,), _ = stream.receive()
    assert partition.error_code == code


async def test_c12_a_closed_stream_leaves_nothing_behind(broker: BrokerReplicas) -> None:
    stream = await leading(broker, "orders")
    assert broker.hosted("orders").watchers
    stream.session.close()
    assert not broker.hosted("orders").watchers


async def test_a_follower_speaks_for_itself_alone(broker: BrokerReplicas) -> None:
    """Or one broker could tell what another has, and with that commit what nobody has."""
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    impostor = FollowerStream(broker, 2, proven=BrokerId(3))
    with pytest.raises(WrongSender, match="broker 3 asks as broker 2"):
        impostor.send("orders", ack_only=True)
    assert not broker.hosted("orders").watchers
    FollowerStream(broker, 2, proven=BrokerId(2)).send("orders", ack_only=True)
    assert broker.hosted("orders").watchers


def test_frames_keep_header_and_records_apart() -> None:
    frame = pack_frame(b"header", [b"one", memoryview(b"two")])
    header, records = unpack_frame(frame)
    assert header == b"header"
    assert bytes(records) == b"onetwo"


@pytest.mark.parametrize("frame", [b"", b"\x00\x00", b"\x00\x00\x00\x09short"])
def test_a_frame_that_is_shorter_than_it_says_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        unpack_frame(frame)
