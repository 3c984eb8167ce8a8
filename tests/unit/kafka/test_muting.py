"""A client over its quota gets its response, and is then muted for a while (Q4, Q5)."""

from quorate.broker.kafka.connection.requests import RequestThrottle
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
