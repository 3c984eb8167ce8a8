"""One watch: applied transactions in order from an offset, never skipping, never repeating.

Entries are looked for in memory first, then in the journal; where compaction has removed them from
both, a snapshot of the present image comes first. Nothing is queued for a watcher: the next event
is made when the last one was taken. So a slow watcher costs one event and the bytes that its
connection buffers, and holds up nobody.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Final

from quorate.common.types import MetadataOffset
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.reader import LogEntry
from quorate.metadata_log.records import kind_of
from quorate.quorum.raft.raft_clock import clock_s
from quorate.quorum.voter.voter import Voter
from quorate.quorum.voter.watch_sources import oldest_state
from quorate_proto.v1 import quorum_pb2 as pb

NOTHING: Final = MetadataOffset(0)
EVENT_BYTES: Final = 1 << 20
HEARTBEAT_S: Final = 1.0
"""A watcher hears at least this often that its voter lives, by an event without news."""

HEARTBEAT_MAX_S: Final = 2.0
"""Where many watch, this may pass until an event without news, for those who allow it. The event
before says so, and they are as much more patient.
"""

HEARTBEATS_PER_S: Final = 500
"""All watchers together are sent about this many events without news, if they allow it. Each costs
some 0.2 ms.
"""

TOGETHER_S: Final = 0.05
"""Where many watch, events without news go out at multiples of this time. To wake up once for all
that are due saves a fifth of what the voter costs at rest.
"""

PACE_S: Final = 0.000_2
"""The pause after an event, per watcher. However many there are, the voter sends 5,000 events a
second at most, and the transactions that gather meanwhile share events.
"""

LEADERLESS_S: Final = 2.0
"""A voter without a leader for this long may be cut off: its watchers should try another one."""


class VoterCutOff(Exception):
    """This voter has had no leader for a while: nothing new can be seen here."""


async def watch(
    voter: Voter,
    start: MetadataOffset | None,
    record_kinds: frozenset[str],
    at_least: MetadataOffset = NOTHING,
    heartbeat_max_s: float = HEARTBEAT_S,
) -> AsyncGenerator[pb.WatchEvent, None]:
    """Yield events without end, one at least every ``HEARTBEAT_S`` or as the last one says, which
    names no more than ``heartbeat_max_s``. If ``start`` is None, begin with the oldest.

    A snapshot of the present image is of ``at_least`` or later, which is applied.

    Raises:
        VoterCutOff: the watcher should go on at another voter.
    """
    voter.watchers += 1
    try:
        if start is None:
            kept = await asyncio.to_thread(oldest_state, voter.config.data_dir)
            for event in _snapshot_events(kept.chunks, kept.offset):
                yield event
            start = kept.next_offset
        async for event in _events(voter, start, record_kinds, at_least, heartbeat_max_s):
            yield event
    finally:
        voter.watchers -= 1


async def _events(
    voter: Voter,
    start: MetadataOffset,
    record_kinds: frozenset[str],
    at_least: MetadataOffset,
    heartbeat_max_s: float,
) -> AsyncIterator[pb.WatchEvent]:
    next_offset = start
    told_offset = start - 1
    heartbeat_s = HEARTBEAT_S
    while True:
        if next_offset < 1:
            snapshot = await voter.snapshot.of(
                voter.image, voter.applied_offset, voter.tail.first_offset, at_least
            )
            for event in _snapshot_events(snapshot.chunks, snapshot.offset):
                yield event
            # Continue after the no-ops that follow the image's last transaction: they may be
            # compacted away. The watcher is told of them by an event without transactions.
            told_offset, next_offset = snapshot.offset, snapshot.next_offset
            heartbeat_s = HEARTBEAT_S
            continue
        entries, through = await _entries(voter, next_offset)
        if through is None:
            next_offset = MetadataOffset(0)
            continue
        if through > told_offset:
            wanted = [entry for entry in entries if _is_wanted(entry, record_kinds)]
            heartbeat_s = _heartbeat_s(voter, heartbeat_max_s)
            yield _event(wanted, through, heartbeat_s)
            told_offset = through
        next_offset = MetadataOffset(max(next_offset, through + 1))
        if through >= voter.applied_offset:
            # One event costs about as much as ten transactions in it.
            await asyncio.sleep(voter.watchers * PACE_S)
            while not await _news(voter, through, heartbeat_s):
                heartbeat_s = _heartbeat_s(voter, heartbeat_max_s)
                yield _event((), through, heartbeat_s)


def _heartbeat_s(voter: Voter, most_s: float) -> float:
    """Return the time within which the next event follows.

    It is short without a leader, so that no watcher stays for longer than ``HEARTBEAT_S`` after
    ``LEADERLESS_S``, which no interval exceeds.
    """
    if voter.without_leader_since is not None:
        return HEARTBEAT_S
    return max(HEARTBEAT_S, min(voter.watchers / HEARTBEATS_PER_S, most_s, HEARTBEAT_MAX_S))


def _snapshot_events(chunks: Sequence[bytes], offset: MetadataOffset) -> Iterator[pb.WatchEvent]:
    for chunk in chunks:
        yield pb.WatchEvent(snapshot_chunk=chunk)
    yield pb.WatchEvent(snapshot_done=True, applied_offset=offset)


async def _entries(
    voter: Voter, start: MetadataOffset
) -> tuple[Sequence[LogEntry], MetadataOffset | None]:
    """Return some entries from ``start`` on, and up to where they are complete, or None if
    compacted away.
    """
    applied = voter.applied_offset
    if start > applied:
        return (), applied
    if start < voter.tail.first_offset:
        found = await voter.read_journal(start)
        return ((), None) if found is None else found
    entries = voter.tail.read(start, EVENT_BYTES)
    cut_short = bool(entries) and entries[-1].offset < voter.tail.last_offset
    return entries, entries[-1].offset if cut_short else applied


async def _news(voter: Voter, known: MetadataOffset, heartbeat_s: float) -> bool:
    """Wait for something to be applied after ``known``; return False after ``heartbeat_s``
    without.
    """
    if voter.applied_offset > known:
        return True
    since = voter.without_leader_since
    if since is not None and clock_s() - since > LEADERLESS_S:
        raise VoterCutOff
    try:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + heartbeat_s
        if heartbeat_s > HEARTBEAT_S:
            ends_s = ends_s // TOGETHER_S * TOGETHER_S
        async with asyncio.timeout_at(ends_s):
            while voter.applied_offset <= known:
                await voter.changed()
    except TimeoutError:
        return False
    return True


def _event(
    entries: Sequence[LogEntry], applied_offset: MetadataOffset, heartbeat_s: float
) -> pb.WatchEvent:
    return pb.WatchEvent(
        transactions=[
            pb.WatchedTransaction(offset=entry.offset, transaction=entry.transaction)
            for entry in entries
        ],
        applied_offset=applied_offset,
        heartbeat_ms=int(1000 * heartbeat_s) if heartbeat_s > HEARTBEAT_S else 0,
    )


def _is_wanted(entry: LogEntry, record_kinds: frozenset[str]) -> bool:
    if not record_kinds:
        return True
    return any(
        kind_of(record) in record_kinds
        for operation in decode_transaction(entry.transaction).operations
        for record in operation.records
    )
