"""Copies the live batches of mostly dead segments forward, so that the segments can be deleted.

It works in the background and in pieces: batches of about the size of a commit are read and written
again by the log writer before the next ones are read. After each piece it pauses for a multiple of
the time that the piece took, unless the disk holds more than it should. Appends are therefore
hardly delayed.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import Batch, read_header
from quorate.broker.log.rewriting.relocation_plan import (
    RelocationStep,
    SegmentUsage,
    next_step,
    should_roll,
)
from quorate.broker.log.rewriting.rewriter import Rewrite, Rewriter
from quorate.broker.log.segments.batch_index import PlacedBatch
from quorate.broker.log.segments.batch_places import CHUNK_BYTES
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.stored.stored_log import LogReads, StoredLog
from quorate.broker.log.writing.log_writer import LogWriter
from quorate.common.types import TopicIdPartition

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 1 << 20
REST: Final = 3
"""The length of a pause, as a multiple of the time that the piece took."""
_LOGS_PER_BREATH: Final = 200


class Relocator:
    """Works as long as copying frees space. ``wake`` starts it when there may be something to
    do."""

    def __init__(
        self,
        logs: Mapping[TopicIdPartition, StoredLog],
        writer: LogWriter,
        rewriter: Rewriter,
        reads: LogReads,
        readers: Executor,
    ) -> None:
        """``readers`` are the threads that read the batches to copy."""
        self._logs = logs
        self._writer = writer
        self._segments = writer.segments
        self._rewriter = rewriter
        self._reads = reads
        self._readers = readers
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.copied_bytes = 0
        """The bytes that were copied since the store was opened."""
        self._given_up: dict[int, int] = {}
        """The segments with an unreadable batch, with the live bytes of each at that time."""

    def wake(self) -> None:
        """Start work, because batches became dead or a segment was sealed."""
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work(), name="log-relocation")

    async def idle(self) -> None:
        """Wait until there is nothing to do."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Stop after the piece that is being written."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        try:
            while step := self._next_step():
                await self._empty(self._segments.by_id[step.segment_id], rests=not step.is_urgent)
        except KafkaError as error:
            log.info("copying batches out of old segments is put off: %s", error.message)
        except Exception:
            log.exception("copying batches out of old segments failed; it is tried again later")

    def _next_step(self) -> RelocationStep | None:
        return next_step(self._usages(), self._segments.newest.live_bytes)

    async def _roll_if_waited_for(self) -> None:
        """Seal the active segment if copies in it are waited for. Without fsync, the old versions
        can be deleted only then."""
        newest = self._segments.newest
        if self._segments.is_waited_for(newest) and should_roll(
            list(self._usages()), newest.live_bytes
        ):
            await self._writer.roll()

    def _usages(self) -> Iterator[SegmentUsage]:
        kept = self._segments.kept_bytes()
        newest_id = self._segments.newest.id
        for segment in self._segments.by_id.values():
            live_bytes = segment.live_bytes - kept[segment.id]
            is_hopeless = self._given_up.get(segment.id) == segment.live_bytes
            if segment.is_sealed and segment.id < newest_id and not is_hopeless:
                yield SegmentUsage(segment.id, segment.stored_bytes, live_bytes)

    async def _empty(self, segment: Segment, *, rests: bool) -> None:
        """Copy the live batches of ``segment`` forward."""
        before = self.copied_bytes
        piece: list[tuple[StoredLog, list[PlacedBatch]]] = []
        size = 0
        for number, each in enumerate(tuple(self._logs.values())):
            if number % _LOGS_PER_BREATH == 0:
                await asyncio.sleep(0)
            for run in each.placed_in(segment):
                for part in _parts(run):
                    piece.append((each, part))
                    size += sum(placed.size for placed in part)
                    if size >= PIECE_BYTES:
                        await self._copy(segment, piece, rests=rests)
                        piece, size = [], 0
        if piece:
            await self._copy(segment, piece, rests=rests)
        copied = self.copied_bytes - before
        log.info("log segment %d: %d bytes that lived in it copied forward", segment.id, copied)
        if segment.live_bytes > self._segments.kept_bytes()[segment.id]:
            self._given_up[segment.id] = segment.live_bytes
        await self._roll_if_waited_for()

    async def _copy(
        self,
        segment: Segment,
        piece: Sequence[tuple[StoredLog, list[PlacedBatch]]],
        *,
        rests: bool,
    ) -> None:
        """Read a piece in a thread, have it written, and pause."""
        self._writer.check_writable()
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        reading = self._readers.submit(_read, segment, piece)
        read = await asyncio.wrap_future(reading)
        rewrites: list[Rewrite] = []
        for (each, old), found in zip(piece, read, strict=True):
            if segment.id not in self._segments.by_id:
                return  # All batches of the segment became dead, and its file was deleted.
            if isinstance(found, DamagedBatch):
                self._reads.on_damaged(each, found)
            else:
                rewrites.append(Rewrite(each, old, found))
        done = await self._rewriter.rewrite(rewrites)
        for rewrite, was_done in zip(rewrites, done, strict=True):
            self.copied_bytes += was_done * sum(placed.size for placed in rewrite.old)
        if rests:
            await asyncio.sleep(REST * (clock() - begun_s))


def _parts(run: Sequence[PlacedBatch]) -> Iterator[list[PlacedBatch]]:
    """Yield successive batches in pieces of about the size of a commit."""
    part: list[PlacedBatch] = []
    size = 0
    for placed in run:
        part.append(placed)
        size += placed.size
        if size >= PIECE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _read(
    segment: Segment, piece: Sequence[tuple[StoredLog, list[PlacedBatch]]]
) -> list[list[Batch] | DamagedBatch]:
    return [_batches(segment, each.number, old) for each, old in piece]


def _batches(
    segment: Segment, number: int, old: Sequence[PlacedBatch]
) -> list[Batch] | DamagedBatch:
    """Return the stored batches, each as one buffer."""
    try:
        chunks = iter(segment.read(number, [(each.base_offset, each.size) for each in old]))
    except DamagedBatch as damaged:
        return damaged
    found: list[Batch] = []
    for placed in old:
        data = memoryview(b"".join(islice(chunks, -(-placed.size // CHUNK_BYTES))))
        found.append(Batch(read_header(data), data))
    return found
