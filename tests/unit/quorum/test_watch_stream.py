"""A watch at one voter: where it goes on after a snapshot."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from metadata_log.image import Image
from metadata_log.reader import LogEntry
from metadata_log.types import MetadataOffset
from quorate_proto.v1 import quorum_pb2 as pb
from quorum.log_tail import LogTail
from quorum.voter import JournalRange, Voter
from quorum.watch_stream import watch


class FakeVoter:
    """Its state came from a snapshot up to ``applied``; the last transaction in it is older."""

    without_leader_since = None

    def __init__(self, image_offset: int, applied: int) -> None:
        self.image = Image(offset=MetadataOffset(image_offset))
        self.applied_offset = MetadataOffset(applied)
        self.tail = LogTail()
        self.tail.restart(MetadataOffset(applied + 1))
        self._changed = asyncio.Event()

    def apply(self, entry: LogEntry) -> None:
        self.tail.extend([entry])
        self.applied_offset = entry.offset
        self._changed.set()

    async def changed(self) -> None:
        await self._changed.wait()

    async def read_journal(self, start: MetadataOffset) -> JournalRange | None:
        """Everything below the snapshot's end is compacted away."""
        return None


async def next_event(events: AsyncIterator[pb.WatchEvent]) -> pb.WatchEvent:
    async with asyncio.timeout(5):
        return await anext(events)


async def test_p11_watch_sends_one_snapshot_though_no_ops_follow_its_last_transaction() -> None:
    voter = FakeVoter(image_offset=10, applied=12)
    events = watch(cast("Voter", cast("Any", voter)), MetadataOffset(0), frozenset())
    assert (await next_event(events)).snapshot_chunk
    done = await next_event(events)
    assert (done.snapshot_done, done.applied_offset) == (True, 10)
    caught_up = await next_event(events)
    assert (len(caught_up.transactions), caught_up.applied_offset) == (0, 12)
    voter.apply(LogEntry(MetadataOffset(13), b""))
    after = await next_event(events)
    assert [entry.offset for entry in after.transactions] == [13]
