"""Who may fetch over a framed stream, and what ends one (C12; each replica as itself alone)."""

import asyncio
import logging

import pytest

from quorate.broker.replication.services.leader_stream import HELLO_TIMEOUT_S, LeaderStream
from quorate.broker.replication.services.replication_listener import ReplicationListener
from quorate.broker.replication.serving.replica_fetch_session import WrongSender
from quorate.broker.replication.streams.fetch_messages import ReplicaFetchRequest, ReplicaPosition
from quorate.broker.replication.streams.packed_codec import (
    HELLO_BYTES_MAX,
    LENGTH,
    VERSION,
    Hello,
    encode_hello,
    encode_refusal,
    encode_request,
)
from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.types import BrokerEpoch, BrokerId, TopicIdPartition
from tests.support.broker_replicas import BrokerReplicas
from tests.support.follower_transport import FollowerTransport
from tests.support.metadata import topic_id_of
from tests.support.replica_cluster import batch
from tests.support.virtual_time import VirtualTimeLoop, pass_time


def follower(broker: BrokerReplicas, proven: BrokerId | None = None) -> FollowerTransport:
    """A connection to broker 1; ``proven``: whose certificate it has."""
    stream = LeaderStream(broker.manager.table, lambda _: proven, lambda _: None, lambda _: None)
    return FollowerTransport(stream)


def request(replica_id: int = 2, *, max_bytes: int = 1 << 20) -> ReplicaFetchRequest:
    tip = TopicIdPartition(topic_id_of("orders"), 0)
    return ReplicaFetchRequest(
        BrokerId(replica_id), BrokerEpoch(10), 500, max_bytes, False, [ReplicaPosition(tip, 0)]
    )


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_c12_a_follower_is_sent_what_is_new(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    transport = follower(broker)
    transport.say_hello(follower=2, leader=1)
    transport.deliver(encode_request(request()))
    await turns()
    assert not transport.responses
    for value in ("a", "b" * 40_000):
        await broker.produce("orders", batch(value), acks=0)
    broker.store.flush()
    await turns()
    ((fetched,),) = transport.responses
    assert fetched.size == sum(map(len, fetched.records)) > 40_000
    transport.close()
    assert not broker.hosted("orders").watchers, "a stream that is over costs nothing"


async def test_news_of_one_turn_leave_in_one_response(broker: BrokerReplicas) -> None:
    for topic in ("orders", "bills"):
        await broker.lead(topic, isr=(1, 2), replicas=(1, 2))
    transport = follower(broker)
    transport.say_hello(follower=2, leader=1)
    tips = [TopicIdPartition(topic_id_of(topic), 0) for topic in ("orders", "bills")]
    positions = [ReplicaPosition(tip, 0) for tip in tips]
    transport.deliver(encode_request(request()._replace(positions=positions)))
    for topic in ("orders", "bills"):
        await broker.produce(topic, batch("a"), acks=0)
    broker.store.flush()
    await turns()
    (response,) = transport.responses
    assert len(response) == 2


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({"follower": 2, "leader": 4}, "this is broker 1, not 4"),
        ({"follower": 2, "leader": 1, "version": 9}, "version 9 of the frames; 1 is known here"),
        ({"follower": 3, "leader": 1}, "broker 2 asks as broker 3"),
    ],
)
async def test_a_hello_must_be_right(
    broker: BrokerReplicas, hello: dict[str, int], why: str
) -> None:
    transport = follower(broker, BrokerId(2))
    transport.say_hello(**hello)
    assert transport.refusals == [why]
    assert transport.is_closed


async def test_a_request_may_arrive_together_with_the_hello(broker: BrokerReplicas) -> None:
    await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
    transport = follower(broker)
    asked = encode_request(request())
    assert len(asked) > HELLO_BYTES_MAX
    transport.deliver(encode_hello(Hello(VERSION, BrokerId(2), BrokerId(1))) + asked)
    assert transport.refusals == []
    await broker.produce("orders", batch("a"), acks=0)
    broker.store.flush()
    await turns()
    assert len(transport.responses) == 1


async def test_a_follower_asks_as_itself_alone(broker: BrokerReplicas) -> None:
    transport = follower(broker)
    transport.say_hello(follower=2, leader=1)
    transport.deliver(encode_request(request(replica_id=3)))
    assert transport.refusals == ["broker 2 asks as broker 3"]
    assert transport.is_closed


async def test_nothing_is_asked_before_a_hello(broker: BrokerReplicas) -> None:
    transport = follower(broker)
    positions: list[ReplicaPosition] = []
    transport.deliver(encode_request(request()._replace(positions=positions)))
    assert transport.refusals == ["the first frame of a follower is of kind 2, not a hello"]


async def test_a_stranger_may_send_little(broker: BrokerReplicas) -> None:
    transport = follower(broker)
    transport.deliver(LENGTH.pack(1 << 20))
    assert transport.refusals == ["a frame of 1048576 bytes, 64 are allowed"]
    assert transport.is_closed


async def test_a_follower_sends_requests_alone(broker: BrokerReplicas) -> None:
    transport = follower(broker)
    transport.say_hello(follower=2, leader=1)
    transport.deliver(encode_refusal("no"))
    assert transport.refusals == ["a follower sends no frame of kind 4"]


async def test_a_fault_of_the_leader_ends_the_stream_alone(
    broker: BrokerReplicas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transport = follower(broker)
    transport.say_hello(follower=2, leader=1)

    def fails(_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(broker.manager.table, "follower_heard", fails)
    with caplog.at_level(logging.ERROR):
        transport.deliver(encode_request(request()))
    assert transport.refusals == ["broker 1 failed: ZeroDivisionError('a fault')"]
    assert "ZeroDivisionError" in caplog.text


async def test_a_certificate_of_no_broker_is_refused(broker: BrokerReplicas) -> None:
    def prove(_: object) -> BrokerId | None:
        raise WrongSender("this is no broker's certificate")

    stream = LeaderStream(broker.manager.table, prove, lambda _: None, lambda _: None)
    transport = FollowerTransport(stream)
    assert transport.refusals == ["this is no broker's certificate"]
    assert transport.is_closed


async def test_only_so_many_strangers_are_waited_for(broker: BrokerReplicas) -> None:
    listener = ReplicationListener(broker.manager.table, None, RefusalLog("test"))
    strangers = [FollowerTransport(listener._stream()) for _ in range(99)]
    known = [FollowerTransport(listener._stream())]
    known[0].say_hello(follower=2, leader=1)
    strangers.append(FollowerTransport(listener._stream()))
    assert not any(stranger.is_closed for stranger in strangers)
    late = FollowerTransport(listener._stream())
    assert late.refusals == ["100 connections have not said who they are"]
    strangers[0].close()
    assert not FollowerTransport(listener._stream()).is_closed
    await listener.stop()
    assert known[0].is_closed
    assert FollowerTransport(listener._stream()).is_closed


def test_who_does_not_say_hello_is_not_waited_for() -> None:
    async def scenario() -> None:
        broker = await BrokerReplicas().start()
        silent, speaks = follower(broker), follower(broker)
        speaks.say_hello(follower=2, leader=1)
        await pass_time(HELLO_TIMEOUT_S - 0.1)
        assert not silent.is_closed
        await pass_time(0.2)
        assert silent.refusals == ["no hello came within 10 s"]
        assert not speaks.is_closed
        await broker.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scenario())
