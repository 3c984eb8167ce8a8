"""A client that does not authenticate in time makes room for one that does."""

import asyncio

from broker.security.door import ClientSession, Door
from broker.security.principal import KafkaPrincipal
from broker.security.sasl import SaslOptions
from tests.support.sasl import logins
from tests.unit.kafka.test_connection import Bench


def guarded() -> Bench:
    options = SaslOptions(
        mechanisms=("PLAIN",), logins=logins(), max_reauth_ms=0, draw_nonce=lambda: "nonce"
    )
    return Bench(door=Door(sasl=options, login_frame_bytes=1 << 16), login_ms=30_000)


async def test_who_does_not_authenticate_is_closed_after_a_time() -> None:
    bench = guarded()
    await asyncio.sleep(29.9)
    assert not bench.transport.closed
    await asyncio.sleep(0.2)
    assert bench.transport.closed


async def test_who_has_authenticated_stays() -> None:
    bench = guarded()
    session: ClientSession = bench.connection._session
    assert session.sasl is not None
    session.sasl.authenticated = True
    session.sasl.principal = KafkaPrincipal("ann")
    await asyncio.sleep(60)
    assert not bench.transport.closed


async def test_who_need_not_authenticate_stays() -> None:
    bench = Bench(login_ms=30_000)
    await asyncio.sleep(60)
    assert not bench.transport.closed
