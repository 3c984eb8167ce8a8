"""When the metadata log said what: sessions that expired, brokers and controllers that came.

Followed in a thread, by a client of the quorum like any broker; ``time.time()`` in seconds of the
moment the news was here.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from quorate.common.tls.identity import Security
from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import BrokerRegistration, ControllerClaim, Record, SessionClosed
from quorate.quorum.client.quorum_client import QuorumClient, SnapshotLoaded

_CONNECT_TIMEOUT_MS: Final = 30_000
_SESSION_TIMEOUT_MS: Final = 30_000


class Event(NamedTuple):
    """Something that happened to a broker: "expired", "registered" or "elected"."""

    at_s: float
    what: str
    broker_id: int


class MetadataWatch:
    """A context manager; events since it began, the state it found included."""

    def __init__(self, addresses: Sequence[str], security: Security | None) -> None:
        self._addresses = addresses
        self._security = security
        self._events: list[Event] = []
        self._brokers: dict[SessionId, int] = {}
        self._grown = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metadata-watch")
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> "MetadataWatch":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()
        self._loop.close()

    def wait_for(self, what: str, broker_id: int, *, since_s: float, timeout_s: float) -> Event:
        """The first such event after ``since_s``.

        Raises:
            TimeoutError: none in time.
        """
        return self._wait(lambda e: (e.what, e.broker_id) == (what, broker_id), since_s, timeout_s)

    def wait_for_any(self, what: str, *, since_s: float, timeout_s: float) -> Event:
        """Wait as ``wait_for`` does, for whichever broker it is."""
        return self._wait(lambda event: event.what == what, since_s, timeout_s)

    def _wait(self, is_it: Callable[[Event], bool], since_s: float, timeout_s: float) -> Event:
        def found() -> Event | None:
            return next((e for e in self._events if e.at_s >= since_s and is_it(e)), None)

        with self._grown:
            event = self._grown.wait_for(found, timeout_s)
        if event is None:
            raise TimeoutError(f"no such news from the quorum within {timeout_s:g} s")
        return event

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._follow())
        self._loop.run_until_complete(asyncio.gather(self._task, return_exceptions=True))

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        client = QuorumClient(
            self._addresses,
            description="bench watch",
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            security=self._security,
        )
        await client.start(deadline_ms=_CONNECT_TIMEOUT_MS)
        try:
            async for event in client.watch(MetadataOffset(0)):
                if isinstance(event, SnapshotLoaded):
                    self._load(event.image)
                    continue
                for _, transaction in event.transactions:
                    for operation in transaction.operations:
                        for record in operation.records:
                            self._note(record)
        finally:
            await client.close()

    def _load(self, image: Image) -> None:
        for broker in image.brokers.values():
            self._brokers[broker.registration.session_id] = broker.broker_id

    def _note(self, record: Record) -> None:
        match record:
            case SessionClosed(session_id=session) if session in self._brokers:
                self._add("expired", self._brokers.pop(session))
            case BrokerRegistration(broker_id=broker_id, session_id=session):
                self._brokers[session] = broker_id
                self._add("registered", broker_id)
            case ControllerClaim(broker_id=broker_id):
                self._add("elected", broker_id)

    def _add(self, what: str, broker_id: int) -> None:
        with self._grown:
            self._events.append(Event(time.time(), what, broker_id))
            self._grown.notify_all()
