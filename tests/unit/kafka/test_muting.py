"""A client over its quota gets its response, and is then muted for a while (Q4, Q5)."""

import asyncio
from typing import cast

from quorate.broker.kafka.connection.connection_limits import SharedMemory
from quorate.broker.kafka.connection.requests import RequestThrottle
from quorate.broker.quota.client_memory import ClientMemory, RequestMemory
from quorate.broker.quota.client_quota_manager import QuotaTurn
from tests.support.virtual_time import pass_time
from tests.unit.kafka.test_connection import Bench, settle


def throttled(bench: Bench, name: str, time_ms: int) -> None:
    bench.script.throttles[name] = throttle = RequestThrottle()
    throttle.at_least(time_ms)


async def answered(bench: Bench, name: str) -> None:
    bench.script.finish(name)
    await settle()


async def test_q5_the_answer_goes_out_and_then_nothing_is_read_for_the_time() -> None:
    bench = Bench()
    throttled(bench, "r1", 8_000)
    bench.receive("r1")
    await answered(bench, "r1")
    assert bench.answered() == [1]
    assert not bench.transport.reading
    await pass_time(7.9)
    assert not bench.transport.reading
    await pass_time(0.2)
    assert bench.transport.reading


async def test_q5_what_was_received_before_is_not_begun_until_then() -> None:
    bench = Bench(in_flight_requests=1)
    throttled(bench, "r1", 1_000)
    bench.receive("r1", "r2")
    await answered(bench, "r1")
    await pass_time(0.9)
    assert bench.script.started == ["r1"]
    await pass_time(0.2)
    assert bench.script.started == ["r1", "r2"]


async def test_q5_a_client_that_gets_no_answer_is_muted_too() -> None:
    bench = Bench()
    throttled(bench, "r1", 1_000)
    bench.receive("r1")
    await settle()
    bench.script.finish("r1", b"")
    await settle()
    assert not bench.transport.reading


async def test_q11_the_longest_time_counts_in_whatever_order() -> None:
    bench = Bench()
    throttled(bench, "r1", 5_000)
    throttled(bench, "r2", 1_000)
    bench.receive("r1", "r2")
    await answered(bench, "r1")
    await answered(bench, "r2")
    assert bench.answered() == [1, 2]
    await pass_time(4.9)
    assert not bench.transport.reading
    await pass_time(0.2)
    assert bench.transport.reading


async def test_q5_a_muted_connection_does_not_hold_up_the_stop() -> None:
    bench = Bench()
    throttled(bench, "r1", 60_000)
    bench.receive("r1")
    await answered(bench, "r1")
    bench.connection.drain()
    assert bench.transport.closed


async def test_q5_one_that_is_gone_is_not_listened_to_again() -> None:
    bench = Bench()
    throttled(bench, "r1", 1_000)
    bench.receive("r1")
    await answered(bench, "r1")
    bench.connection.connection_lost(None)
    await pass_time(2)
    assert not bench.transport.reading


async def test_without_a_throttle_nothing_is_muted() -> None:
    bench = Bench()
    bench.receive("r1")
    await answered(bench, "r1")
    assert bench.transport.reading


class Muted:
    """The turn of requests whose client is muted by other connections, for as long as is left."""

    def __init__(self, until_s: float, *, places: int = 1) -> None:
        self.until_s = asyncio.get_running_loop().time() + until_s
        self.places = places

    def wait_ms(self) -> int:
        return max(0, round((self.until_s - asyncio.get_running_loop().time()) * 1_000))

    def take(self) -> bool:
        self.places -= 1
        return self.places >= 0

    def leave(self) -> None:
        self.places += 1


def muted(bench: Bench, name: str, turn: Muted) -> None:
    bench.script.turns[name] = cast("QuotaTurn", turn)


async def test_q5_a_new_connection_inherits_the_mute_of_its_client() -> None:
    bench = Bench()
    turn = Muted(8.0)
    muted(bench, "r1", turn)
    bench.receive("r1")
    await pass_time(7.9)
    assert bench.script.started == []
    assert not bench.transport.reading
    assert turn.places == 0
    await pass_time(0.2)
    assert bench.script.started == ["r1"]
    assert turn.places == 1
    await answered(bench, "r1")
    assert bench.answered() == [1]
    assert bench.transport.reading


async def test_q5_a_mute_that_was_prolonged_meanwhile_is_waited_for_again() -> None:
    bench = Bench()
    turn = Muted(2.0)
    muted(bench, "r1", turn)
    bench.receive("r1")
    await pass_time(1)
    turn.until_s += 3
    await pass_time(3.9)
    assert bench.script.started == []
    await pass_time(0.2)
    assert bench.script.started == ["r1"]
    assert turn.places == 1


async def test_q5_requests_without_a_quota_pass_before_those_that_wait() -> None:
    bench = Bench()
    muted(bench, "r2", Muted(8.0))
    bench.receive("r1", "r2", "r3")
    await settle()
    assert bench.script.started == ["r1"]
    await answered(bench, "r1")
    assert bench.answered() == [1]
    await pass_time(8.1)
    assert bench.script.started == ["r1", "r2", "r3"]


async def test_q5_with_too_many_that_wait_the_connection_is_closed() -> None:
    bench = Bench()
    muted(bench, "r1", Muted(8.0, places=0))
    bench.receive("r1")
    await settle()
    assert bench.transport.closed
    assert bench.script.started == []


async def test_q5_one_that_waits_and_goes_leaves_its_place() -> None:
    bench = Bench()
    turn = Muted(8.0)
    muted(bench, "r1", turn)
    bench.receive("r1")
    await settle()
    assert turn.places == 0
    bench.connection.connection_lost(None)
    assert turn.places == 1


async def test_q5_muted_clients_hold_a_share_of_the_memory_only() -> None:
    memory = SharedMemory(ClientMemory(RequestMemory(64)))
    benches = [Bench(memory=memory) for _ in range(3)]
    for bench in benches:
        muted(bench, "r1", Muted(8.0))
        bench.receive("r1")
    await settle()
    assert [bench.transport.closed for bench in benches] == [False, False, True]
    for bench in benches:
        bench.connection.connection_lost(None)
    assert memory.bounds.requests.muted_bytes == 0


async def test_kip612_nothing_of_a_delayed_connection_is_begun_before_its_turn() -> None:
    bench = Bench()
    bench.connection.delay(3_000)
    bench.receive("r1")
    await pass_time(2.9)
    assert bench.script.started == []
    assert not bench.transport.reading
    await pass_time(0.2)
    assert bench.script.started == ["r1"]
