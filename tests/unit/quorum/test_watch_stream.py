"""A watch at one voter: where it goes on after a snapshot."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

import quorate.quorum.voter.watch_stream
from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.reader import LogEntry
from quorate.quorum.voter.voter import Voter
from quorate.quorum.voter.watch_sources import REUSE_S, JournalRange, LogTail, SharedSnapshot
from quorate.quorum.voter.watch_stream import (
    HEARTBEAT_MAX_S,
    HEARTBEAT_S,
    HEARTBEATS_PER_S,
    LEADERLESS_S,
    PACE_S,
    TOGETHER_S,
    VoterCutOff,
    watch,
)
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.virtual_time import VirtualTimeLoop, pass_time


class FakeVoter:
    """Its state came from a snapshot up to ``applied``; the last transaction in it is older."""

    without_leader_since: float | None = None

    def __init__(self, image_offset: int = 0, applied: int = 0, tail_bytes: int = 1 << 20) -> None:
        self.image = Image(offset=MetadataOffset(image_offset))
        self.applied_offset = MetadataOffset(applied)
        self.tail = LogTail(tail_bytes)
        self.tail.restart(MetadataOffset(applied + 1))
        self.snapshot = SharedSnapshot()
        self.watchers = 0
        self.journal: list[LogEntry] = []
        self.journal_from = applied + 1
        self._changed = asyncio.Event()

    def apply(self, *offsets: int, through: int | None = None) -> None:
        """Transactions at ``offsets``, then no-ops up to ``through``."""
        entries = [LogEntry(MetadataOffset(offset), b"x") for offset in offsets]
        self.tail.extend(entries)
        self.journal += entries
        if offsets:
            self.image = Image(offset=MetadataOffset(offsets[-1]))
        self.applied_offset = MetadataOffset(through or offsets[-1])
        self._changed.set()
        self._changed = asyncio.Event()

    def install(self, image_offset: int, applied: int) -> None:
        """A snapshot of the leader takes the place of everything."""
        self.image = Image(offset=MetadataOffset(image_offset))
        self.journal, self.journal_from = [], applied + 1
        self.tail.restart(MetadataOffset(applied + 1))
        self.apply(through=applied)

    def lose_leader(self) -> None:
        self.without_leader_since = asyncio.get_running_loop().time()
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()

    async def read_journal(self, start: MetadataOffset) -> JournalRange | None:
        if start < self.journal_from:
            return None
        entries = [entry for entry in self.journal if entry.offset >= start][:5]
        last = entries[-1].offset if entries else self.applied_offset
        return JournalRange(entries, last)


def watching(
    voter: FakeVoter, start: int, at_least: int = 0, *, heartbeat_max_s: float = HEARTBEAT_S
) -> AsyncGenerator[pb.WatchEvent, None]:
    as_voter = cast("Voter", cast("Any", voter))
    offset, least = MetadataOffset(start), MetadataOffset(at_least)
    return watch(as_voter, offset, frozenset(), least, heartbeat_max_s)


async def next_event(events: AsyncIterator[pb.WatchEvent]) -> pb.WatchEvent:
    async with asyncio.timeout(5):
        return await anext(events)


async def test_p11_watch_sends_one_snapshot_though_no_ops_follow_its_last_transaction() -> None:
    voter = FakeVoter(image_offset=10, applied=12)
    events = watching(voter, 0)
    assert (await next_event(events)).snapshot_chunk
    done = await next_event(events)
    assert (done.snapshot_done, done.applied_offset) == (True, 10)
    caught_up = await next_event(events)
    assert (len(caught_up.transactions), caught_up.applied_offset) == (0, 12)
    voter.apply(13)
    after = await next_event(events)
    assert [entry.offset for entry in after.transactions] == [13]


def on_virtual_time(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


async def test_e5_a_watch_that_asks_for_the_newest_gets_no_snapshot_of_a_while_ago() -> None:
    voter = FakeVoter()
    voter.apply(1)
    await next_event(watching(voter, 0))
    voter.apply(2)

    async def offset_told(at_least: int) -> int:
        events = watching(voter, 0, at_least)
        while not (event := await next_event(events)).snapshot_done:
            pass
        return event.applied_offset

    assert await offset_told(0) == 1, "shared"
    assert await offset_told(1) == 1, "recent enough"
    assert await offset_told(2) == 2
    assert await offset_told(0) == 2, "the later one is shared from now on"


async def test_watch_from_a_negative_offset_begins_with_a_snapshot() -> None:
    voter = FakeVoter()
    voter.apply(1, 2, 3)
    assert (await next_event(watching(voter, -5))).snapshot_chunk


def test_watch_from_beyond_the_end_waits_for_that_offset() -> None:
    async def test() -> None:
        voter = FakeVoter()
        voter.apply(1, 2, 3)
        events = watching(voter, 6)
        assert not (await next_event(events)).transactions  # A heartbeat.
        reading = asyncio.ensure_future(next_event(events))
        voter.apply(4, 5, 6, 7)
        assert [one.offset for one in (await reading).transactions] == [6, 7]

    on_virtual_time(test)


def test_idle_watcher_hears_that_its_voter_lives() -> None:
    async def test() -> None:
        voter = FakeVoter()
        voter.apply(1, through=2)
        events = watching(voter, 3)
        started_s = asyncio.get_running_loop().time()
        for _ in range(3):
            event = await next_event(events)
            assert (len(event.transactions), event.applied_offset) == (0, 2)
        assert asyncio.get_running_loop().time() - started_s < 3 * HEARTBEAT_S + 0.1

    on_virtual_time(test)


def test_watchers_share_events_and_a_lone_transaction_is_told_at_once() -> None:
    """However many watch, the voter has to make a bounded number of events a second."""
    count, seconds = 100, 2

    async def test() -> None:
        loop = asyncio.get_running_loop()
        voter = FakeVoter()
        made = 0

        async def read() -> None:
            nonlocal made
            async for event in watching(voter, 1):
                made += bool(event.transactions)

        readers = [asyncio.create_task(read()) for _ in range(count)]
        await pass_time(0.5)
        told_s = loop.time()
        voter.apply(1)
        while made < count:
            await pass_time(0.0001)
        assert loop.time() - told_s < 0.001
        made = 0
        for offset in range(2, 1_000 * seconds):
            voter.apply(offset)
            await pass_time(0.001)
        assert 0.5 / PACE_S < made / seconds < 1.1 / PACE_S
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert voter.watchers == 0

    on_virtual_time(test)


def test_watchers_who_come_together_share_one_snapshot() -> None:
    async def test() -> None:
        voter = FakeVoter()
        voter.apply(1, 2, 3)
        streams = [watching(voter, 0) for _ in range(3)]
        first = await asyncio.gather(*map(anext, streams))
        assert len({event.snapshot_chunk for event in first}) == 1
        encoding = voter.snapshot._encoding
        voter.apply(4)
        later = watching(voter, 0)
        await anext(later)
        assert voter.snapshot._encoding is encoding
        done = await anext(later)
        assert (done.snapshot_done, done.applied_offset) == (True, 3)
        assert [one.offset for one in (await anext(later)).transactions] == [4]
        await pass_time(REUSE_S + 0.1)
        assert voter.snapshot._encoding is None

    on_virtual_time(test)


def test_shared_snapshot_is_not_given_once_what_follows_is_gone() -> None:
    async def test() -> None:
        voter = FakeVoter()
        voter.apply(1, 2, 3)
        await anext(watching(voter, 0))
        voter.install(9, applied=10)
        events = watching(voter, 0)
        await anext(events)
        assert (await anext(events)).applied_offset == 9

    on_virtual_time(test)


@pytest.mark.parametrize("seed", range(30))
def test_watch_never_skips_or_repeats(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any start, a reader of any pace, no-ops, a short memory, compaction, snapshots installed."""
    monkeypatch.setattr(quorate.quorum.voter.watch_stream, "EVENT_BYTES", 3)
    rolls = random.Random(seed)
    start = rolls.choice([-1, 0, 1, 3, 40, 200])

    async def test() -> None:
        voter = FakeVoter(tail_bytes=2_000)
        written: set[int] = set()
        delivered: list[int] = []
        covered = max(0, start - 1)
        """The reader has everything up to here, by snapshot or by transactions."""

        async def read() -> None:
            nonlocal covered
            async for event in watching(voter, start):
                if event.snapshot_done:
                    assert event.applied_offset >= covered
                    covered = event.applied_offset
                for one in event.transactions:
                    assert one.offset > covered
                    assert not {each for each in written if covered < each < one.offset}
                    covered = one.offset
                    delivered.append(one.offset)
                if rolls.random() < 0.3:
                    await pass_time(rolls.random() / 10)

        reading = asyncio.create_task(read())
        at = 0
        for _ in range(150):
            fresh = sorted(rolls.sample(range(at + 1, at + 12), rolls.randrange(6)))
            written.update(fresh)
            at += 12
            voter.apply(*fresh, through=at)
            if rolls.random() < 0.1:
                voter.journal_from = rolls.randrange(voter.journal_from, at + 1)
            if rolls.random() < 0.03:
                at += 30
                voter.install(at - 2, applied=at)
                written.clear()
            await pass_time(rolls.random() / 50)
        await pass_time(30)
        assert not reading.done() or reading.result()
        assert not {each for each in written if each > covered}
        assert delivered == sorted(set(delivered))
        reading.cancel()

    on_virtual_time(test)


def crowded(voter: FakeVoter) -> None:
    """So many watch that events without news come at the longest interval."""
    voter.watchers = int(HEARTBEATS_PER_S * HEARTBEAT_MAX_S)


async def expect_intervals(events: AsyncIterator[pb.WatchEvent], named_ms: int) -> None:
    """Every event names this interval, and the next one comes within it, or a second if it is 0."""
    loop = asyncio.get_running_loop()
    await next_event(events)
    for _ in range(3):
        began_s = loop.time()
        assert (await next_event(events)).heartbeat_ms == named_ms
        late_s = loop.time() - began_s - (named_ms or 1_000) / 1000
        assert -TOGETHER_S - 0.001 < late_s < 0.001


@pytest.mark.parametrize(
    ("watchers", "allowed_s", "named_ms"),
    [(1, 2.0, 0), (499, 2.0, 0), (749, 2.0, 1_500), (999, 2.0, 2_000), (9_999, 9.0, 2_000)],
)
def test_watchers_who_allow_it_hear_more_rarely_where_many_watch_and_are_told_before(
    watchers: int, allowed_s: float, named_ms: int
) -> None:
    async def test() -> None:
        voter = FakeVoter()
        voter.apply(1)
        voter.watchers = watchers
        events = watching(voter, 2, heartbeat_max_s=allowed_s)
        await expect_intervals(events, named_ms)

    on_virtual_time(test)


@pytest.mark.parametrize("allowed_s", [0.0, 1.0])
def test_watchers_of_an_earlier_release_hear_every_second_however_many_there_are(
    allowed_s: float,
) -> None:
    """They leave a voter after three seconds, whatever it says."""

    async def test() -> None:
        voter = FakeVoter()
        voter.apply(1)
        crowded(voter)
        await expect_intervals(watching(voter, 2, heartbeat_max_s=allowed_s), 0)

    on_virtual_time(test)


def test_many_watchers_hear_at_the_same_moments_that_their_voter_lives() -> None:
    """To wake up for each of them alone would cost the voter more than the events do."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        voter = FakeVoter()
        voter.apply(1)
        crowded(voter)
        heard_s: set[float] = set()

        async def read() -> None:
            async for event in watching(voter, 2, heartbeat_max_s=HEARTBEAT_MAX_S):
                if event.heartbeat_ms and loop.time() > 3 * HEARTBEAT_MAX_S:
                    heard_s.add(loop.time())

        readers = []
        for _ in range(20):
            readers.append(asyncio.create_task(read()))
            await pass_time(0.002)
        await pass_time(5 * HEARTBEAT_MAX_S)
        assert 0 < len(heard_s) < 10
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    on_virtual_time(test)


def test_who_was_told_nothing_yet_hears_within_a_second() -> None:
    """A snapshot names no interval, wherever it comes, nor does the beginning of a watch."""

    async def test() -> None:
        voter = FakeVoter()
        voter.apply(1, 2, 3)
        crowded(voter)
        loop = asyncio.get_running_loop()

        async def expect_event() -> None:
            began_s = loop.time()
            await next_event(events)
            assert loop.time() - began_s < HEARTBEAT_S + 2 * PACE_S * voter.watchers

        events = watching(voter, 4, heartbeat_max_s=HEARTBEAT_MAX_S)
        await expect_event()
        assert (await next_event(events)).heartbeat_ms == 2_000
        voter.install(9, applied=9)
        while not (await next_event(events)).snapshot_done:
            pass
        await expect_event()

    on_virtual_time(test)


def test_a_voter_that_loses_its_leader_is_left_no_later_where_many_watch() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        voter = FakeVoter()
        voter.apply(1)
        crowded(voter)
        named_ms: dict[float, int] = {}

        async def read() -> None:
            async for event in watching(voter, 2, heartbeat_max_s=HEARTBEAT_MAX_S):
                named_ms[loop.time()] = event.heartbeat_ms

        reading = asyncio.create_task(read())
        await pass_time(1.3)
        lost_s = loop.time()
        voter.lose_leader()
        with pytest.raises(VoterCutOff):
            await reading
        assert list(named_ms.values())[:2] == [2_000, 0], "it was in the middle of a long interval"
        assert loop.time() - lost_s <= LEADERLESS_S + HEARTBEAT_S + 0.01

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            quorate.quorum.voter.watch_stream,
            "clock_s",
            lambda: asyncio.get_running_loop().time(),
        )
        on_virtual_time(test)
