"""One watch: applied transactions in order from an offset, never skipping, never repeating.

Newest first looked for in memory, then in the journal; where both have been left behind by
compaction, a snapshot of the present image comes first.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from metadata_log.codec import decode_transaction
from metadata_log.image import Image
from metadata_log.reader import LogEntry
from metadata_log.records import kind_of
from metadata_log.snapshot import encode_snapshot
from metadata_log.types import MetadataOffset
from quorate_proto.v1 import quorum_pb2 as pb
from quorum.raft.library import clock_s
from quorum.voter import Voter

EVENT_BYTES: Final = 1 << 20
SNAPSHOT_CHUNK_BYTES: Final = 256 << 10
LEADERLESS_S: Final = 2.0
"""A voter without a leader for this long may be cut off: its watchers should try another one."""


class VoterCutOff(Exception):
    """This voter has had no leader for a while: nothing new can be seen here."""


async def watch(
    voter: Voter, start: MetadataOffset, record_kinds: frozenset[str]
) -> AsyncIterator[pb.WatchEvent]:
    """Events without end.

    Raises:
        VoterCutOff: the watcher should go on at another voter.
    """
    next_offset = start
    told_offset = start - 1
    while True:
        if next_offset < 1:
            # Go on behind the no-ops after the image's last transaction: they may be compacted
            # away. The watcher is told of them by an event without transactions.
            image, next_offset = voter.image, MetadataOffset(voter.applied_offset + 1)
            async for event in _snapshot(image):
                yield event
            told_offset = image.offset
            continue
        entries, through = await _entries(voter, next_offset)
        if through is None:
            next_offset = MetadataOffset(0)
            continue
        if through > told_offset:
            wanted = [entry for entry in entries if _is_wanted(entry, record_kinds)]
            yield _event(wanted, through)
            told_offset = through
        next_offset = MetadataOffset(max(next_offset, through + 1))
        if through >= voter.applied_offset:
            await _wait_for_news(voter, through)


async def _entries(
    voter: Voter, start: MetadataOffset
) -> tuple[Sequence[LogEntry], MetadataOffset | None]:
    """Some entries from ``start`` on, and up to where that is everything; None: compacted away."""
    applied = voter.applied_offset
    if start > applied:
        return (), applied
    if start < voter.tail.first_offset:
        found = await voter.read_journal(start)
        return ((), None) if found is None else found
    entries = voter.tail.read(start, EVENT_BYTES)
    cut_short = bool(entries) and entries[-1].offset < voter.tail.last_offset
    return entries, entries[-1].offset if cut_short else applied


async def _wait_for_news(voter: Voter, known: MetadataOffset) -> None:
    while voter.applied_offset <= known:
        since = voter.without_leader_since
        if since is not None and clock_s() - since > LEADERLESS_S:
            raise VoterCutOff
        try:
            async with asyncio.timeout(LEADERLESS_S / 2):
                await voter.changed()
        except TimeoutError:
            continue


async def _snapshot(image: Image) -> AsyncIterator[pb.WatchEvent]:
    for chunk in encode_snapshot(image, SNAPSHOT_CHUNK_BYTES):
        yield pb.WatchEvent(snapshot_chunk=chunk)
        await asyncio.sleep(0)
    yield pb.WatchEvent(snapshot_done=True, applied_offset=image.offset)


def _event(entries: Sequence[LogEntry], applied_offset: MetadataOffset) -> pb.WatchEvent:
    return pb.WatchEvent(
        transactions=[
            pb.WatchedTransaction(offset=entry.offset, transaction=entry.transaction)
            for entry in entries
        ],
        applied_offset=applied_offset,
    )


def _is_wanted(entry: LogEntry, record_kinds: frozenset[str]) -> bool:
    if not record_kinds:
        return True
    return any(
        kind_of(record) in record_kinds
        for operation in decode_transaction(entry.transaction).operations
        for record in operation.records
    )
