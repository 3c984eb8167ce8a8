"""A client that does not authenticate in time makes room for one that does, and many failures of
one address are answered slowly."""

import asyncio

from quorate.broker.kafka.connection.requests import ClientSession
from quorate.broker.security.failed_logins import GROWTH_MAX, STEP, FailedLogins
from quorate.broker.security.listener_security import ListenerSecurity
from quorate.broker.security.principal import KafkaPrincipal
from quorate.broker.security.sasl_session import SaslOptions
from tests.support.sasl import credentials
from tests.support.virtual_time import pass_time
from tests.unit.kafka.test_connection import Bench


def guarded() -> Bench:
    options = SaslOptions(
        mechanisms=("PLAIN",),
        credentials=credentials(),
        max_reauth_ms=0,
        draw_nonce=lambda: "nonce",
    )
    return Bench(
        security=ListenerSecurity(sasl=options, login_frame_bytes=1 << 16), login_ms=30_000
    )


async def test_who_does_not_authenticate_is_closed_after_a_time() -> None:
    bench = guarded()
    await pass_time(29.9)
    assert not bench.transport.closed
    await pass_time(0.2)
    assert bench.transport.closed


async def test_who_has_authenticated_stays() -> None:
    bench = guarded()
    session: ClientSession = bench.connection._session
    assert session.sasl is not None
    session.sasl.authenticated = True
    session.sasl.principal = KafkaPrincipal("ann")
    await pass_time(60)
    assert not bench.transport.closed


async def test_who_need_not_authenticate_stays() -> None:
    bench = Bench(login_ms=30_000)
    await pass_time(60)
    assert not bench.transport.closed


async def failed(failures: FailedLogins, address: str) -> float:
    """Return after how many seconds a login is answered that fails now."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await failures.delay(address, began_s, 100)
    return loop.time() - began_s


async def test_many_failures_of_one_address_are_answered_later_and_those_of_others_not() -> None:
    failures = FailedLogins()
    flood = [asyncio.ensure_future(failed(failures, "10.0.0.66")) for _ in range(4 * STEP)]
    await pass_time(0.0)
    other = asyncio.ensure_future(failed(failures, "10.0.0.9"))
    await pass_time(60)
    assert round(await other, 3) == 0.1
    delays_s = [round(await one, 3) for one in flood]
    assert (delays_s[0], delays_s[-1]) == (0.1, 0.5)
    assert round(await failed(failures, "10.0.0.66"), 3) == 0.1, "that is over"
    assert not failures._delayed


async def test_the_delay_has_an_end_however_many_fail() -> None:
    failures = FailedLogins()
    flood = [asyncio.ensure_future(failed(failures, "10.0.0.66")) for _ in range(10_000)]
    await pass_time(60)
    assert max([await one for one in flood]) < GROWTH_MAX * 0.1 + 0.001
