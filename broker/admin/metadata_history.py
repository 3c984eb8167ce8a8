"""Reads the metadata log as changes: the old and new value of every key, from one offset to
another.

The log has no old values. Reading therefore begins at the oldest state that the quorum keeps, or
where the last reader ended, and applies every transaction since. The changes in the range are sent
in frames. Each frame is made when the reader takes it, and the event loop runs other tasks in
between.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final, NamedTuple

from quorate.broker.admin.metadata_change_frame import ChangeFrame
from quorate.broker.control.ports import QuorumView
from quorate.broker.metadata.metadata_follower import MetadataFollower, Run, runs_of
from quorate.common.types import MetadataOffset
from quorate.metadata_log.apply import apply_run
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import snapshot_offset
from quorate.metadata_log.tree.history import KeyChange, Kinds, history
from quorate.quorum.client.watch import SILENCE_S, SnapshotLoaded, decoded, watch_request
from quorate.quorum.quorum_errors import OffsetUnavailable, QuorumUnavailable
from quorate_proto.v1.admin_pb2 import MetadataChanges, MetadataOffsetsResponse
from quorate_proto.v1.quorum_pb2 import WatchEvent, WatchRequest

YIELD_INTERVAL_S: Final = 0.003
"""The time after which other tasks get their turn, between two transactions or two rows."""

KEPT_S: Final = 600.0
_FROM_OLDEST: Final = watch_request(from_oldest=True)


class LogCompactedMeanwhile(QuorumUnavailable):
    """Raised when the next part of the log is only in a snapshot by now."""


class HistoryState(NamedTuple):
    """The image with everything below ``next_offset`` applied."""

    image: Image
    next_offset: MetadataOffset


class HistoryStateCache:
    """Keeps for a while the state of the reader that read furthest.

    A later reader continues from there without applying everything again, and loses nothing if the
    log was compacted since.
    """

    def __init__(self) -> None:
        self._state: HistoryState | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    def at_or_before(self, offset: MetadataOffset) -> HistoryState | None:
        state = self._state
        return state if state is not None and state.next_offset <= offset else None

    def put(self, state: HistoryState) -> None:
        if self._state is not None and state.next_offset < self._state.next_offset:
            return
        self._state = state
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_S, self._forget)

    def _forget(self) -> None:
        self._state = None


class MetadataHistory:
    """The metadata log as changes, for all readers at one broker."""

    def __init__(self, quorum: QuorumView, images: MetadataFollower) -> None:
        self._quorum = quorum
        self._images = images
        self._kept = HistoryStateCache()

    async def offsets(self, *, latest_only: bool) -> MetadataOffsetsResponse:
        """Return the first offset whose changes are known, and the offset after everything
        acknowledged so far.

        Raises:
            QuorumError: The quorum does not answer.
        """
        # This is not the quorum's newest entry, which is a no-op that the query itself appends.
        newest = await self._images.wait_for(await self._quorum.read_offset())
        answer = MetadataOffsetsResponse(
            latest_offset=newest.offset + 1, cluster_id=self._quorum.cluster_id
        )
        if not latest_only:
            async with aclosing(_watched(self._quorum, _FROM_OLDEST)) as events:
                chunk = (await anext(events)).snapshot_chunk
            answer.earliest_offset = snapshot_offset([chunk]) + 1
        return answer

    async def image_at(self, offset: MetadataOffset) -> Image:
        """Return the image after ``offset``, which must not be above the newest.

        Raises:
            OffsetUnavailable: The quorum does not keep it any more.
            QuorumError: The voter that was read from is gone, or does not have ``offset`` yet.
        """
        if offset >= self._images.image.offset:
            return self._images.image
        image = Image()
        async with (
            aclosing(_watched(self._quorum, _FROM_OLDEST)) as events,
            aclosing(decoded(events, MetadataOffset(0))) as decoded_events,
        ):
            async for event in decoded_events:
                if isinstance(event, SnapshotLoaded):
                    image = event.image
                    _require_at_or_before(image, offset)
                    continue
                for run in runs_of([one for one in event.transactions if one[0] <= offset]):
                    image = apply_run(image, run).image
                    await asyncio.sleep(0)
                if event.applied_offset >= offset:
                    return image
        raise QuorumUnavailable("the voter that was read from has ended the watch")

    async def changes(
        self, start: MetadataOffset, end: MetadataOffset, kinds: Kinds
    ) -> AsyncGenerator[MetadataChanges, None]:
        """Yield frames with the changes of ``start <= offset < end``, as far back as they are kept.

        The first frame has no rows. It says where reading begins.

        Raises:
            QuorumError: The voter that was read from is gone, does not have ``end`` yet, or no
                longer keeps the next part.
        """
        reading = _Reading(start, end, kinds)
        state = self._kept.at_or_before(start)
        if state is not None:
            yield reading.begin(*state)
            try:
                async for frame in self._rest(reading, watch_request(state.next_offset)):
                    yield frame
                return
            except LogCompactedMeanwhile:
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


def _require_at_or_before(image: Image, offset: MetadataOffset) -> None:
    if image.offset > offset:
        raise OffsetUnavailable(
            f"offset {offset} is not kept: the oldest state is that of {image.offset}"
        )


async def _watched(quorum: QuorumView, request: WatchRequest) -> AsyncGenerator[WatchEvent, None]:
    """Watch to the end of what the voter has.

    Raises:
        QuorumUnavailable: No voter accepts the request, or the voter has become silent or has sent
            everything.
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
    """The progress of one reader."""

    def __init__(self, start: MetadataOffset, end: MetadataOffset, kinds: Kinds) -> None:
        self._end = end
        self._kinds = kinds
        self._image: Image | None = None
        self._frame = ChangeFrame()
        self._next_yield_s = 0.0
        self.next_offset = start
        """The offset below which everything was sent, from where reading began."""

    def begin(self, image: Image, next_offset: MetadataOffset) -> MetadataChanges:
        """Begin with the state after everything below ``next_offset``.

        Raises:
            LogCompactedMeanwhile: There was an earlier state, and the log does not continue from
                it.
        """
        if self._image is not None:
            raise LogCompactedMeanwhile(
                f"the log was compacted up to offset {image.offset} while it was read"
            )
        self._image = image
        self.next_offset = max(self.next_offset, next_offset)
        return MetadataChanges(first_offset=self.next_offset, next_offset=self.next_offset)

    @property
    def is_done(self) -> bool:
        return self.next_offset >= self._end

    @property
    def state(self) -> HistoryState:
        """Return the state that was reached. This is only valid for a reader that is done."""
        return HistoryState(self._current, self.next_offset)

    async def go_on(
        self, transactions: Run, applied_offset: MetadataOffset
    ) -> AsyncIterator[MetadataChanges]:
        """Yield frames for the next transactions. The last frame is sent however small it is."""
        behind = [one for one in transactions if one[0] < self.next_offset]
        for run in runs_of(behind):
            self._image = apply_run(self._current, run).image
            await asyncio.sleep(0)
        for offset, transaction in transactions[len(behind) :]:
            if offset >= self._end:
                break
            self._image, changes = history(self._current, offset, transaction, self._kinds)
            self.next_offset = offset
            await self._yield_to_event_loop()
            async for frame in self._filled(changes):
                yield frame
            self.next_offset = MetadataOffset(offset + 1)
        sent_to = min(self._end, MetadataOffset(applied_offset + 1))
        self.next_offset = max(self.next_offset, sent_to)
        yield self._taken()

    async def _filled(self, changes: Iterable[KeyChange]) -> AsyncIterator[MetadataChanges]:
        """Yield the frames that ``changes`` fill. The rest waits for more changes."""
        for change in changes:
            self._frame.add(change)
            if self._frame.is_full:
                yield self._taken()
            await self._yield_to_event_loop()

    async def _yield_to_event_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_yield_s:
            await asyncio.sleep(0)
            self._next_yield_s = loop.time() + YIELD_INTERVAL_S

    def _taken(self) -> MetadataChanges:
        taken, self._frame = self._frame, ChangeFrame()
        return taken.finish(self.next_offset)

    @property
    def _current(self) -> Image:
        if self._image is None:
            raise QuorumUnavailable("the watch did not begin with a snapshot")
        return self._image
