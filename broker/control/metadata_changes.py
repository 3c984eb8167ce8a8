"""Reads the metadata log as changes: old and new of every key, from one offset to another.

Old values are in no log. So reading begins at the oldest state that the quorum keeps, whatever
offset is asked for, and applies everything since; what lies in the range is told, lazily and in
frames, with a breath for the event loop every few hundred rows. A watch holds up nobody: what is
not taken is not made.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final

from broker.control.change_frames import ChangeFrame
from broker.control.ports import QuorumView
from broker.metadata_follower import Run, runs_of
from metadata_log.apply import apply_run
from metadata_log.history import KeyChange, Kinds, history
from metadata_log.image import Image
from metadata_log.snapshot import snapshot_offset
from metadata_log.types import MetadataOffset
from quorate_proto.v1.admin_pb2 import MetadataChanges, MetadataOffsetsResponse
from quorate_proto.v1.quorum_pb2 import WatchEvent, WatchRequest
from quorum.client_watch import SILENCE_S, SnapshotLoaded, decoded
from quorum.errors import QuorumUnavailable

STEPS_PER_BREATH: Final = 200
"""Rows and operations; some 3 ms."""

_NOTHING: Final = MetadataOffset(0)


async def readable_offsets(quorum: QuorumView, *, latest_only: bool) -> MetadataOffsetsResponse:
    """From the first offset whose changes can be told to behind everything acknowledged by now.

    Raises:
        QuorumError: the quorum does not answer.
    """
    answer = MetadataOffsetsResponse(
        latest_offset=await quorum.read_offset() + 1, cluster_id=quorum.cluster_id
    )
    if not latest_only:
        async with aclosing(_watched(quorum)) as events:
            chunk = (await anext(events)).snapshot_chunk
        answer.earliest_offset = snapshot_offset([chunk]) + 1
    return answer


async def changes_between(
    quorum: QuorumView, start: MetadataOffset, end: MetadataOffset, kinds: Kinds
) -> AsyncGenerator[MetadataChanges, None]:
    """Frames with the changes of ``start <= offset < end``, as far back as they are kept.

    The first one has no rows, and says where reading begins.

    Raises:
        QuorumError: the voter that was read from is gone, does not have ``end`` yet, or no longer
            keeps what comes next.
    """
    reading = _Reading(start, end, kinds)
    async with (
        aclosing(_watched(quorum)) as events,
        aclosing(decoded(events, _NOTHING)) as decoded_events,
    ):
        async for event in decoded_events:
            if isinstance(event, SnapshotLoaded):
                yield reading.begin(event.image)
                continue
            async for frame in reading.go_on(event.transactions, event.applied_offset):
                yield frame
            if reading.next_offset >= end:
                return
    raise QuorumUnavailable("the voter that was read from has ended the watch")


async def _watched(quorum: QuorumView) -> AsyncGenerator[WatchEvent, None]:
    """A watch from the oldest state that is kept, to the end of what its voter has.

    Raises:
        QuorumUnavailable: no voter takes it, it has fallen silent, or has told everything.
    """
    told_offset = -1
    async with aclosing(quorum.relay_watch(WatchRequest(from_oldest=True))) as events:
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise QuorumUnavailable("the voter that was read from is silent") from None
            is_heartbeat = not (event.transactions or event.snapshot_chunk or event.snapshot_done)
            if is_heartbeat and event.applied_offset == told_offset:
                raise QuorumUnavailable(f"offsets above {told_offset} are not written yet")
            told_offset = event.applied_offset
            yield event


class _Reading:
    """How far one reader is."""

    def __init__(self, start: MetadataOffset, end: MetadataOffset, kinds: Kinds) -> None:
        self._end = end
        self._kinds = kinds
        self._image: Image | None = None
        self._frame = ChangeFrame()
        self._steps = 0
        self.next_offset = start
        """Everything below, from where reading began, was told."""

    def begin(self, oldest: Image) -> MetadataChanges:
        """At the oldest state.

        Raises:
            QuorumUnavailable: there was one before, and the log does not go on from it: what lies
                between the two was compacted away meanwhile.
        """
        if self._image is not None:
            raise QuorumUnavailable(
                f"the log was compacted up to offset {oldest.offset} while it was read"
            )
        self._image = oldest
        self.next_offset = max(self.next_offset, MetadataOffset(oldest.offset + 1))
        return MetadataChanges(first_offset=self.next_offset, next_offset=self.next_offset)

    async def go_on(
        self, transactions: Run, applied_offset: MetadataOffset
    ) -> AsyncIterator[MetadataChanges]:
        """Frames for what was applied next; the last one is sent however little is in it."""
        behind = [one for one in transactions if one[0] < self.next_offset]
        for run in runs_of(behind):
            self._image = apply_run(self._current, run).image
            await asyncio.sleep(0)
        for offset, transaction in transactions[len(behind) :]:
            if offset >= self._end:
                break
            self._image, changes = history(self._current, offset, transaction, self._kinds)
            self.next_offset = offset
            await self._step(len(transaction.operations))
            async for frame in self._filled(changes):
                yield frame
            self.next_offset = MetadataOffset(offset + 1)
        told = min(self._end, MetadataOffset(applied_offset + 1))
        self.next_offset = max(self.next_offset, told)
        yield self._taken()

    async def _filled(self, changes: Iterable[KeyChange]) -> AsyncIterator[MetadataChanges]:
        """The frames that ``changes`` fill; what is left over waits for more."""
        for change in changes:
            self._frame.add(change)
            if self._frame.is_full:
                yield self._taken()
            await self._step(1)

    async def _step(self, steps: int) -> None:
        self._steps += steps
        if self._steps >= STEPS_PER_BREATH:
            self._steps = 0
            await asyncio.sleep(0)

    def _taken(self) -> MetadataChanges:
        taken, self._frame = self._frame, ChangeFrame()
        return taken.finish(self.next_offset)

    @property
    def _current(self) -> Image:
        if self._image is None:
            raise QuorumUnavailable("the watch did not begin with a snapshot")
        return self._image
