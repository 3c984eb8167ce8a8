"""A follower's stream is answered when there is news, else when its long poll is over, once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from quorate.broker.replication.frames import pack_frame, unpack_frame
from quorate.broker.replication.services.replication_service import ReplicationService
from quorate_proto.v1 import replication_pb2
from tests.support.broker_replicas import BrokerReplicas
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
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._service = ReplicationService(broker.manager.table)

    async def run(self) -> None:
        context: Any = self
        await self._service.fetch(self._frames(), context)

    async def _frames(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._requests.get()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    async def write(self, frame: bytes) -> None:
        _, records = unpack_frame(frame)
        self.answers.append((self.broker.clock.now_ms(), len(records)))

    def ask(self, fetch_offset: int = 0, max_wait_ms: int = MAX_WAIT_MS) -> None:
        request = replication_pb2.ReplicaFetchRequest(
            replica_id=2, broker_epoch=10, max_wait_ms=max_wait_ms, max_bytes=1 << 20
        )
        request.positions.add(
            topic_id=topic_id_of("orders"),
            partition=0,
            current_leader_epoch=0,
            fetch_offset=fetch_offset,
            flushed_offset=fetch_offset,
        )
        self._requests.put_nowait(pack_frame(request.SerializeToString()))

    async def produce(self) -> int:
        """One more record, durable; its size."""
        await self.broker.produce("orders", batch("a"), acks=0)
        self.broker.store.flush()
        return len(self.broker.store.logs[self.broker.hosted("orders").tip].batches[-1][2])


def run(scenario: Callable[[Stream], Awaitable[None]]) -> None:
    async def with_stream() -> None:
        broker = BrokerReplicas()
        broker.clock = LoopClock()
        await broker.start()
        await broker.lead("orders", isr=(1, 2), replicas=(1, 2))
        stream = Stream(broker)
        serving = asyncio.create_task(stream.run())
        await scenario(stream)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await broker.close()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(with_stream())


def test_a_long_poll_ends_in_its_own_time_whenever_it_began() -> None:
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


def test_news_end_a_long_poll_that_nobody_was_woken_for() -> None:
    async def scenario(stream: Stream) -> None:
        stream.ask()
        await pass_time(0.55)
        stream.ask()
        await pass_time(0.1)
        size = await stream.produce()
        await pass_time(0.01)
        assert stream.answers[1:] == [(650, size)]

    run(scenario)


def test_what_is_there_already_is_the_answer_at_once() -> None:
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


def test_a_follower_that_waits_less_long_than_before_is_answered_sooner() -> None:
    async def scenario(stream: Stream) -> None:
        stream.ask()
        await pass_time(0.55)
        stream.ask(max_wait_ms=20)
        await pass_time(0.03)
        assert stream.answers[1:] == [(570, 0)]

    run(scenario)


def test_a_long_poll_is_short_enough_that_its_follower_is_not_taken_for_silent() -> None:
    async def scenario(stream: Stream) -> None:
        stream.broker.limits.silence = 300
        stream.ask(max_wait_ms=60_000)
        await pass_time(0.15)
        assert stream.answers == [(100, 0)]

    run(scenario)
