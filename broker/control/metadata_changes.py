"""Reads the metadata log as changes: old and new of every key, from one offset to another.

Old values are in no log. So reading begins at the oldest state that the quorum keeps, or where the
last reader ended, and applies everything since; what lies in the range is told, lazily and in
frames, with breaths for the event loop. A watch holds up nobody: what is
not taken is not made.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final, NamedTuple

from broker.control.change_frames import ChangeFrame
from broker.control.ports import Images, QuorumView
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

BREATH_S: Final = 0.003
"""After so long others have their turn: between two transactions, and two rows."""

KEPT_S: Final = 600.0
_FROM_OLDEST: Final = WatchRequest(from_oldest=True)


class CompactedMeanwhile(QuorumUnavailable):
    """Between what was read and what comes next, some of the log is in a snapshot alone."""


class State(NamedTuple):
    """The image that everything below ``next_offset`` has made."""

    image: Image
    next_offset: MetadataOffset


class KeptState:
    """Where the reader ended that came furthest, for a while: a stream goes on from there, without
    applying everything again, and without a loss if the log was compacted since.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    def at_or_before(self, offset: MetadataOffset) -> State | None:
        state = self._state
        return state if state is not None and state.next_offset <= offset else None

    def put(self, state: State) -> None:
        if self._state is not None and state.next_offset < self._state.next_offset:
            return
        self._state = state
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_S, self._forget)

    def _forget(self) -> None:
        self._state = None


class MetadataHistory:
    """The log as changes, for all who read it at one broker."""

    def __init__(self, quorum: QuorumView, images: Images) -> None:
        self._quorum = quorum
        self._images = images
        self._kept = KeptState()

    async def offsets(self, *, latest_only: bool) -> MetadataOffsetsResponse:
        """From the first offset whose changes can be told to behind all acknowledged by now.

        Raises:
            QuorumError: the quorum does not answer.
        """
        # Not the quorum's newest entry: that is a no-op, made by asking for it.
        newest = await self._images.wait_for(await self._quorum.read_offset())
        answer = MetadataOffsetsResponse(
            latest_offset=newest.offset + 1, cluster_id=self._quorum.cluster_id
        )
        if not latest_only:
            async with aclosing(_watched(self._quorum, _FROM_OLDEST)) as events:
                chunk = (await anext(events)).snapshot_chunk
            answer.earliest_offset = snapshot_offset([chunk]) + 1
        return answer

    async def changes(
        self, start: MetadataOffset, end: MetadataOffset, kinds: Kinds
    ) -> AsyncGenerator[MetadataChanges, None]:
        """Frames with the changes of ``start <= offset < end``, as far back as they are kept.

        The first one has no rows, and says where reading begins.

        Raises:
            QuorumError: the voter that was read from is gone, does not have ``end`` yet, or no
                longer keeps what comes next.
        """
        reading = _Reading(start, end, kinds)
        state = self._kept.at_or_before(start)
        if state is not None:
            yield reading.begin(*state)
            try:
                async for frame in self._rest(reading, WatchRequest(from_offset=state.next_offset)):
                    yield frame
                return
            except CompactedMeanwhile:
                reading = _Reading(reading.next_offset, end, kinds)
        async for frame in self._rest(reading, _FROM_OLDEST):
            yield frame

    async def _rest(
        self, reading: "_Reading", request: WatchRequest
    ) -> AsyncGenerator[MetadataChanges, None]:
        async with (
            aclosing(_watched(self._quorum, request)) as events,
            aclosing(decoded(events, MetadataOffset(request.from_offset))) as decoded_events,
        ):
            async for event in decoded_events:
                if isinstance(event, SnapshotLoaded):
                    yield reading.begin(event.image, MetadataOffset(event.image.offset + 1))
                    continue
                async for frame in reading.go_on(event.transactions, event.applied_offset):
                    yield frame
                if reading.is_done:
                    self._kept.put(reading.state)
                    return
        raise QuorumUnavailable("the voter that was read from has ended the watch")


async def _watched(quorum: QuorumView, request: WatchRequest) -> AsyncGenerator[WatchEvent, None]:
    """A watch, to the end of what its voter has.

    Raises:
        QuorumUnavailable: no voter takes it, it has fallen silent, or has told everything.
    """
    told_offset = -1
    async with aclosing(quorum.relay_watch(request)) as events:
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
        self._breath_due_s = 0.0
        self.next_offset = start
        """Everything below, from where reading began, was told."""

    def begin(self, image: Image, next_offset: MetadataOffset) -> MetadataChanges:
        """With the state after everything below ``next_offset``.

        Raises:
            CompactedMeanwhile: there was one before, and the log does not go on from it.
        """
        if self._image is not None:
            raise CompactedMeanwhile(
                f"the log was compacted up to offset {image.offset} while it was read"
            )
        self._image = image
        self.next_offset = max(self.next_offset, next_offset)
        return MetadataChanges(first_offset=self.next_offset, next_offset=self.next_offset)

    @property
    def is_done(self) -> bool:
        return self.next_offset >= self._end

    @property
    def state(self) -> State:
        """Once it is done."""
        return State(self._current, self.next_offset)

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
            await self._breathe()
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
            await self._breathe()

    async def _breathe(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._breath_due_s:
            await asyncio.sleep(0)
            self._breath_due_s = loop.time() + BREATH_S

    def _taken(self) -> MetadataChanges:
        taken, self._frame = self._frame, ChangeFrame()
        return taken.finish(self.next_offset)

    @property
    def _current(self) -> Image:
        if self._image is None:
            raise QuorumUnavailable("the watch did not begin with a snapshot")
        return self._image
