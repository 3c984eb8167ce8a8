"""Carries out requests of people on this broker, by the same code as those of Kafka clients.

A frame goes through the dispatcher of the Kafka listeners. So rights, quotas, prices and audit are
those of a Kafka client with the principal of the person.
"""

import asyncio
import logging
from typing import Final

from quorate.broker.console.asking.person import Person
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession, CloseConnection
from quorate.broker.kafka.wire.primitives import MalformedRequest
from quorate.broker.quota.client_quota_manager import QuotaTurn

log = logging.getLogger(__name__)

MUTED_MS_MAX: Final = 5_000
"""The longest wait for the end of a mute (KIP-219). A person who would wait longer is told so."""


class AskFailed(Exception):
    """A request was not carried out. The message is for the person who asked."""


class LocalRequests:
    """Carries out frames by the dispatcher of this broker."""

    def __init__(self, dispatcher: RequestDispatcher, listener: str) -> None:
        """``listener`` is the Kafka listener whose addresses responses contain."""
        self._dispatcher = dispatcher
        self._listener = listener

    async def carry_out(self, person: Person, frame: bytes) -> bytes:
        """Return the encoded body of the response.

        Raises:
            AskFailed: the request was refused as a whole.
        """
        session = ClientSession(person.client_host, self._listener, None, person.principal)
        try:
            request = self._dispatcher.decode(memoryview(frame), session)
            await _wait_while_muted(request.turn)
            body = b"".join(await request.run())
        except (MalformedRequest, CloseConnection) as error:
            raise AskFailed(str(error)) from error
        request.lease.keep(0)
        if request.throttle.time_ms:
            await asyncio.sleep(min(request.throttle.time_ms, MUTED_MS_MAX) / 1_000)
        return body


async def _wait_while_muted(turn: QuotaTurn | None) -> None:
    """Wait as a muted connection would (KIP-219).

    Raises:
        AskFailed: the wait would be long, or too many wait already.
    """
    if turn is None or not (wait_ms := turn.wait_ms()):
        return
    if wait_ms > MUTED_MS_MAX or not turn.take():
        raise AskFailed(f"over quota: ask again in {wait_ms / 1000:.0f} s")
    try:
        await asyncio.sleep(wait_ms / 1_000)
    finally:
        turn.leave()
