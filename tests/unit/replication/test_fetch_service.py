"""A follower's stream is answered when there is news, else when its long poll is over, once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from quorate.broker.replication.services.leader_stream import LeaderStream
from quorate.broker.replication.services.replication_service import ReplicationService
from quorate.broker.replication.streams import packed_codec, protobuf_codec
from quorate.broker.replication.streams.fetch_messages import (
    FetchedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)
from quorate.common.types import BrokerEpoch, BrokerId, TopicIdPartition
from tests.support.broker_replicas import BrokerReplicas
from tests.support.follower_transport import FollowerTransport
from tests.support.metadata import topic_id_of
from tests.support.replica_cluster import batch
from tests.support.virtual_time import VirtualTimeLoop, pass_time

MAX_WAIT_MS = 500


class LoopClock:
    """The time of the event loop."""

    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    def wall_clock_ms(self) -> int:
        return 0


class Stream:
    """Broker 2 follows "orders" at broker 1; each answer with when it came and what it brought."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker
        self.answers: list[tuple[int, int]] = []

    async def close(self) -> None:
        raise NotImplementedError

    def send(self, request: ReplicaFetchRequest) -> None:
        raise NotImplementedError

    def ask(self, fetch_offset: int = 0, max_wait_ms: int = MAX_WAIT_MS) -> None:
        tip = TopicIdPartition(topic_id_of("orders"), 0)
        position = ReplicaPosition(tip, 0, fetch_offset, fetch_offset)
        self.send(
            ReplicaFetchRequest(
                BrokerId(2), BrokerEpoch(10), max_wait_ms, 1 << 20, False, [position]
            )
        )

    def answered(self, partitions: list[FetchedPartition]) -> None:
        size = sum(fetched.size for fetched in partitions)
        self.answers.append((self.broker.clock.now_ms(), size))

    async def produce(self) -> int:
        """One more record, durable; its size."""
        await self.broker.produce("orders", batch("a"), acks=0)
        self.broker.store.flush()
        return len(self.broker.store.logs[self.broker.hosted("orders").tip].batches[-1][2])


class GrpcStream(Stream):
    """The stream is a call of gRPC; this is its context, too."""

    def __init__(self, broker: BrokerReplicas) -> None:
        super().__init__(broker)
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        context: Any = self
        service = ReplicationService(broker.manager.table)
        self._serving = asyncio.ensure_future(service.fetch(self._frames(), context))

    async def _frames(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._requests.get()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def write(self, frame: bytes) -> None:
        self.answered(protobuf_codec.decode_response(frame))

    def send(self, request: ReplicaFetchRequest) -> None:
        self._requests.put_nowait(protobuf_codec.encode_request(request))

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)


class FramedStream(Stream):
    """The stream is framed."""

    def __init__(self, broker: BrokerReplicas) -> None:
        super().__init__(broker)
        protocol = LeaderStream(
            broker.manager.table, lambda _: None, lambda _: None, lambda _: None
        )
        self._transport = FollowerTransport(protocol)
        self._transport.on_response = self.answered
        self._transport.say_hello(follower=2, leader=1)

    def send(self, request: ReplicaFetchRequest) -> None:
        self._transport.deliver(packed_codec.encode_request(request))

    async def close(self) -> None:
        self._transport.abort()


Scenario = Callable[[Stream], Awaitable[None]]


@pytest.fixture(params=[GrpcStream, FramedStream])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Returns a function that runs a scenario over a stream, in virtual time."""

    async def with_stream(scenario: Scenario) -> None:
        broker = BrokerReplicas()
        broker.clock = LoopClock()
        await broker.start()
        await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
        stream: Stream = request.param(broker)
        await scenario(stream)
        await stream.close()
        await broker.close()

    def run_scenario(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(with_stream(scenario))

    return run_scenario


Run = Callable[[Scenario], None]


def test_a_long_poll_ends_in_its_own_time_whenever_it_began(run: Run) -> None:
    async def scenario(stream: Stream) -> None:
        stream.ask()
        await pass_time(0.55)
        assert stream.answers == [(500, 0)]
        await pass_time(0.15)
        stream.ask()  # At 700 ms: nobody is woken for it.
        await pass_time(0.49)
        assert len(stream.answers) == 1
        await pass_time(0.02)
        assert stream.answers[1:] == [(1200, 0)]

    run(scenario)


def test_news_end_a_long_poll_that_nobody_was_woken_for(run: Run) -> None:
    async def scenario(stream: Stream) -> None:
        stream.ask()
        await pass_time(0.55)
        stream.ask()
        await pass_time(0.1)
        size = await stream.produce()
        await pass_time(0.01)
        assert stream.answers[1:] == [(650, size)]

    run(scenario)


def test_what_is_there_already_is_the_answer_at_once(run: Run) -> None:
    async def scenario(stream: Stream) -> None:
        stream.ask()
        await pass_time(0.55)
        size = await stream.produce()
        await pass_time(0.1)
        assert len(stream.answers) == 1, "nothing is sent that was not asked for"
        stream.ask()
        await pass_time(0.01)
        assert stream.answers[1:] == [(650, size)]

    run(scenario)


def test_a_follower_that_waits_less_long_than_before_is_answered_sooner(run: Run) -> None:
    async def scenario(stream: Stream) -> None:
        stream.ask()
        await pass_time(0.55)
        stream.ask(max_wait_ms=20)
        await pass_time(0.03)
        assert stream.answers[1:] == [(570, 0)]

    run(scenario)


def test_a_long_poll_is_short_enough_that_its_follower_is_not_taken_for_silent(run: Run) -> None:
    async def scenario(stream: Stream) -> None:
        stream.broker.limits.silence = 300
        stream.ask(max_wait_ms=60_000)
        await pass_time(0.15)
        assert stream.answers == [(100, 0)]

    run(scenario)
