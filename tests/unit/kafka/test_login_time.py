"""A client that does not authenticate in time makes room for one that does."""

from quorate.broker.kafka.connection.requests import ClientSession
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
