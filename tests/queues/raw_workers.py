"""Workers that write down when they asked and when they were answered, to the millisecond.

They accept most of what they get. They also release, reject and renew, keep records until their
locks end, and vanish with what they have.
"""

import asyncio
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from quorate.broker.coordinator.share.state.acknowledgements import ACCEPT, REJECT, RELEASE, RENEW
from quorate_proto.v1 import errors_pb2
from tests.queues.history import Delivery, Record
from tests.queues.ledger import Ledger
from tests.support.raw_share_members import RawShareMember, Refused, ShareSession
from tests.support.raw_share_wire import Acknowledgement, Place, ShareFetched
from tests.support.waiting import async_let_time_pass

_WAIT_MS: Final = 500
_RECORDS: Final = 25
_WORK_S: Final = 0.005
_KEPT = "kept until the lock ends"
_WEIGHTS: Final[Mapping[int | str, int]] = {ACCEPT: 85, RELEASE: 8, REJECT: 3, _KEPT: 2}
_RENEWING: Final = 0.05
"""The share of fetches whose records are renewed before they are acknowledged."""
_VANISHING: Final = 0.004
"""The share of fetches after which a worker dies, and another one comes."""


class RawWorkers:
    """A thread with an event loop, in which all of the workers run. A context manager."""

    def __init__(
        self, bootstrap: str, group_id: str, topic: str, workers: int, ledger: Ledger, seed: int
    ) -> None:
        self._arguments = bootstrap, group_id, topic
        self._workers = workers
        self._ledger = ledger
        self._random = random.Random(seed)
        self._stop: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="raw workers")
        self._failed: BaseException | None = None

    def __enter__(self) -> "RawWorkers":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._loop.is_closed() and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._until_stopped())
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            self._failed = error

    async def _until_stopped(self) -> None:
        self._stop = asyncio.Event()
        chances = [random.Random(self._random.random()) for _ in range(self._workers)]
        working = [asyncio.create_task(self._keep_one(chance)) for chance in chances]
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *working], return_when=asyncio.FIRST_COMPLETED)
        for one in working:
            one.cancel()
        for outcome in await asyncio.gather(*working, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _keep_one(self, chance: random.Random) -> None:
        """Be a worker, and another one when that has vanished."""
        while True:
            worker = _Worker(self._ledger, chance)
            member = RawShareMember(*self._arguments, worker.work)
            worker.name = member.member_id
            living = asyncio.create_task(member.run())
            vanishing = asyncio.create_task(worker.vanishes.wait())
            try:
                await asyncio.wait([living, vanishing], return_when=asyncio.FIRST_COMPLETED)
                if living.done():
                    living.result()
                member.says_goodbye = False
            finally:
                vanishing.cancel()
                living.cancel()
                await asyncio.gather(living, return_exceptions=True)


class _Worker:
    """What one member does with what it gets, and its notes."""

    def __init__(self, ledger: Ledger, chance: random.Random) -> None:
        self._ledger = ledger
        self._chance = chance
        self.name = ""
        self.vanishes = asyncio.Event()
        self._proven: defaultdict[ShareSession, set[tuple[Place, int]]] = defaultdict(set)
        """The partitions that a broker was known to lead, with the leader epochs."""
        self._held: defaultdict[ShareSession, list[Delivery]] = defaultdict(list)

    async def work(self, session: ShareSession, wanted: Mapping[Place, int]) -> None:
        """Fetch once, and say something of what came."""
        try:
            await self._work(session, wanted)
        except BaseException:
            # The session is over, and was in force when the last answer came.
            for one in self._held.pop(session, ()):
                one.given_up_at_s = min(one.given_up_at_s, session.heard_at_s)
            raise

    async def _work(self, session: ShareSession, wanted: Mapping[Place, int]) -> None:
        proven = self._proven[session]
        if not proven >= wanted.items():
            proven |= {(place, wanted[place]) for place in await session.led_in(wanted)}
        asked_at_s = time.monotonic()
        fetched = await session.fetch(wanted, max_wait_ms=_WAIT_MS, max_records=_RECORDS)
        got_at_s = session.heard_at_s
        if any(one.acquired for one in fetched.places.values()):
            deliveries = self._deliveries(fetched, asked_at_s, got_at_s)
            # Leader epochs do not fall: what holds before and after, held in between.
            for place in await session.led_in(wanted):
                if (place, wanted[place]) in proven:
                    for one in deliveries.get(place, ()):
                        one.leader_epoch = wanted[place]
            for some in deliveries.values():
                self._ledger.delivered(some)
                self._held[session] += some
            await self._say_something(session, deliveries)
        codes = {one.error_code for one in fetched.places.values()} - {errors_pb2.NONE}
        if codes:
            raise Refused(codes.pop())

    def _deliveries(
        self, fetched: ShareFetched, asked_at_s: float, got_at_s: float
    ) -> dict[Place, list[Delivery]]:
        lock_s = fetched.lock_ms / 1000
        return {
            place: [
                Delivery(self.name, Record(place[1], offset), asked_at_s, got_at_s, lock_s)
                for batch in one.acquired
                for offset in range(batch.first, batch.last + 1)
            ]
            for place, one in fetched.places.items()
            if one.acquired
        }

    async def _say_something(
        self, session: ShareSession, deliveries: Mapping[Place, list[Delivery]]
    ) -> None:
        records = sum(map(len, deliveries.values()))
        await async_let_time_pass(_WORK_S * records, "work takes time")
        if self._chance.random() < _RENEWING:
            await self._renew(session, deliveries)
        if self._chance.random() < _VANISHING:
            self.vanishes.set()
            await asyncio.Event().wait()  # It is cancelled, with what it has.
        for place, some in deliveries.items():
            await self._acknowledge(session, place, some)

    async def _renew(
        self, session: ShareSession, deliveries: Mapping[Place, list[Delivery]]
    ) -> None:
        said = {place: _said((one, RENEW) for one in some) for place, some in deliveries.items()}
        asked_at_s = time.monotonic()
        codes = await session.acknowledge(said, renews=True)
        for place, some in deliveries.items():
            if not codes[place]:
                for one in some:
                    one.extend(asked_at_s)

    async def _acknowledge(
        self, session: ShareSession, place: Place, deliveries: list[Delivery]
    ) -> None:
        kinds = self._chance.choices(
            list(_WEIGHTS), weights=list(_WEIGHTS.values()), k=len(deliveries)
        )
        spoken_of = [
            (one, kind)
            for one, kind in zip(deliveries, kinds, strict=True)
            if isinstance(kind, int)
        ]
        if not spoken_of:
            return
        settled = [one.record for one, kind in spoken_of if kind != RELEASE]
        now_s = time.monotonic()
        for one, _ in spoken_of:
            one.given_up_at_s = now_s
        try:
            codes = await session.acknowledge({place: _said(spoken_of)})
        except BaseException:
            self._ledger.unknown(settled)
            raise
        if not codes[place]:
            self._ledger.settled(self.name, settled)
        elif codes[place] != errors_pb2.INVALID_RECORD_STATE:
            self._ledger.unknown(settled)


def _said(spoken_of: Iterable[tuple[Delivery, int]]) -> list[Acknowledgement]:
    """Return acknowledgements of one record each, in order."""
    return [Acknowledgement(one.record.offset, one.record.offset, kind) for one, kind in spoken_of]
