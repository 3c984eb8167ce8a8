"""Workers of a share group, in a process that does nothing else (KIP-932).

They speak the protocol themselves and cost next to nothing, so what is measured is the brokers.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.broker.coordinator.share.state.acknowledgements import ACCEPT
from quorate_proto.v1 import errors_pb2
from tests.support.raw_share_members import RawShareMember, Refused, ShareSession
from tests.support.raw_share_wire import Acknowledgement, Place, ShareFetched
from tests.support.waiting import async_let_time_pass, async_wait_until

RECORDS_PER_FETCH: Final = 100
"""Or one, where records are accepted one by one."""
_WAIT_MS: Final = 500
_PATIENCE_S: Final = 60.0
_LEFT_ALONE: Final = frozenset({errors_pb2.NONE})


class Taken(NamedTuple):
    """The work of all workers: ``records`` were accepted and answered in ``elapsed_s``. It has the
    time from asking to getting for each fetch that brought something, and how long after the death
    of half of the workers the last of their records came again."""

    records: int
    elapsed_s: float
    latencies_ms: list[float]
    redelivered_ms: float


def take(
    place: tuple[str, str, str],
    workers: int,
    *,
    one_by_one: bool,
    half_dies: bool,
    warm_up_s: float,
    seconds: float,
) -> Taken:
    """Have workers of a new group take records for so many seconds, from when all are at work.

    ``place``: the bootstrap servers, the group, and a topic with more records than can be taken.

    Raises:
        AssertionError: not all workers get to work.
    """
    load = _Load(place, one_by_one=one_by_one)
    return asyncio.run(load.run(workers, half_dies, warm_up_s, seconds))


def hold(
    place: tuple[str, str, str], records: int, *, accept_every_second: bool, held_s: float
) -> int:
    """Have one worker fetch until so many records are in flight, and keep them for a while.

    Returns:
        The number of records that it has.

    Raises:
        AssertionError: the brokers do not hand out so many.
    """
    return asyncio.run(_hold(place, records, accept_every_second, held_s))


class _Load:
    def __init__(self, place: tuple[str, str, str], *, one_by_one: bool) -> None:
        self._place = place
        self._one_by_one = one_by_one
        self._busy: set[tuple[str, str]] = set()
        self._begin = self._died_at = float("inf")
        self._records = 0
        self._latencies_ms: list[float] = []
        self._redelivered_ms = 0.0

    async def run(self, workers: int, half_dies: bool, warm_up_s: float, seconds: float) -> Taken:
        members = [RawShareMember(*self._place, self._work) for _ in range(workers)]
        living = [asyncio.create_task(member.run()) for member in members]
        await async_wait_until(
            lambda: len(self._busy) == workers, "all workers to get records", timeout_s=_PATIENCE_S
        )
        await async_let_time_pass(warm_up_s, "brokers warm up")
        self._begin = time.perf_counter()
        if half_dies:
            await async_let_time_pass(seconds / 2, "half of them work for half of the time")
            self._die(members[: workers // 2], living)
            await async_let_time_pass(seconds / 2, "the others go on")
        else:
            await async_let_time_pass(seconds, "records are taken")
        taken = Taken(
            self._records,
            time.perf_counter() - self._begin,
            self._latencies_ms,
            self._redelivered_ms,
        )
        self._begin = float("inf")
        for one in living:
            one.cancel()
        await asyncio.gather(*living, return_exceptions=True)
        return taken

    def _die(self, members: list[RawShareMember], living: "list[asyncio.Task[None]]") -> None:
        self._died_at = time.perf_counter()
        for member, one in zip(members, living, strict=False):
            member.says_goodbye = False
            one.cancel()

    async def _work(self, session: ShareSession, wanted: Mapping[Place, int]) -> None:
        asked = time.perf_counter()
        records = 1 if self._one_by_one else RECORDS_PER_FETCH
        fetched = await session.fetch(wanted, max_wait_ms=_WAIT_MS, max_records=records)
        if not any(one.acquired for one in fetched.places.values()):
            _raise_errors(fetched)
            return
        self._busy.add(session.member)
        self._note(fetched, asked)
        codes = await session.acknowledge(_accepted(fetched))
        if any(codes.values()):
            raise Refused(max(codes.values()))
        if time.perf_counter() >= self._begin:
            self._records += sum(
                batch.last - batch.first + 1
                for one in fetched.places.values()
                for batch in one.acquired
            )

    def _note(self, fetched: ShareFetched, asked: float) -> None:
        now = time.perf_counter()
        if asked >= self._begin:
            self._latencies_ms.append((now - asked) * 1000)
        if asked >= self._died_at and any(
            batch.delivery_count > 1 for one in fetched.places.values() for batch in one.acquired
        ):
            self._redelivered_ms = (now - self._died_at) * 1000


def _accepted(fetched: ShareFetched) -> dict[Place, list[Acknowledgement]]:
    """Return the acceptance of all that was fetched."""
    return {
        place: [Acknowledgement(batch.first, batch.last, ACCEPT) for batch in one.acquired]
        for place, one in fetched.places.items()
        if one.acquired
    }


def _raise_errors(fetched: ShareFetched) -> None:
    codes = {one.error_code for one in fetched.places.values()} - _LEFT_ALONE
    if codes:
        raise Refused(codes.pop())


async def _hold(
    place: tuple[str, str, str], records: int, accept_every_second: bool, held_s: float
) -> int:
    held = 0

    async def work(session: ShareSession, wanted: Mapping[Place, int]) -> None:
        nonlocal held
        fetched = await session.fetch(wanted, max_wait_ms=_WAIT_MS, max_records=1_000)
        _raise_errors(fetched)
        for at, one in fetched.places.items():
            for batch in one.acquired:
                count = batch.last - batch.first + 1
                held += count
                if accept_every_second:
                    said = [
                        Acknowledgement(offset, offset, ACCEPT)
                        for offset in range(batch.first + 1, batch.last + 1, 2)
                    ]
                    await session.acknowledge({at: said})

    living = asyncio.create_task(RawShareMember(*place, work).run())
    await async_wait_until(
        lambda: held >= records, lambda: f"{held} of {records} are held", timeout_s=_PATIENCE_S
    )
    await async_let_time_pass(held_s, "memory is looked at")
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)
    return held
