"""Copies what lives of mostly dead segments forward, so that they can go.

In the background and in pieces: batches of about a commit's size are read, written again by the one
writer, and only then the next ones are read. After each piece it rests for a multiple of the time
that the piece took, unless the disk holds more than it should: appends are hardly held up.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from broker.errors import KafkaError
from broker.log.batch_index import Placed
from broker.log.batch_places import CHUNK_BYTES
from broker.log.damage import DamagedBatch
from broker.log.record_batch import Batch, read_header
from broker.log.relocation_plan import Step, Usage, next_step, should_roll
from broker.log.rewriting import Rewrite, Rewriting
from broker.log.segment import Segment
from metadata_log.types import TopicIdPartition

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog
    from broker.log.stored_log import OnDamaged

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 1 << 20
REST: Final = 3
"""Times as long as a piece took."""
_LOGS_PER_BREATH: Final = 200


class Logs(Protocol):
    """What the relocator knows of its store."""

    newest_segment: Segment
    on_damaged: "OnDamaged"
    segments: dict[int, Segment]

    @property
    def logs(self) -> Mapping[TopicIdPartition, "PartitionLog"]: ...

    def check_writable(self) -> None: ...

    async def roll(self) -> None: ...


class Relocator:
    """Works while there is something to gain; ``wake`` it when there may be."""

    def __init__(self, store: Logs, rewriting: Rewriting, readers: Executor) -> None:
        self._store = store
        self._rewriting = rewriting
        self._readers = readers
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.copied_bytes = 0
        """Since the store was opened."""
        self._given_up: dict[int, int] = {}
        """Segments with a batch that cannot be read, and how much of each lived then."""

    def wake(self) -> None:
        """Something died, or a segment was sealed."""
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work(), name="log-relocation")

    async def idle(self) -> None:
        """Return when there is nothing to gain."""
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
                await self._empty(self._store.segments[step.segment_id], rests=not step.is_urgent)
        except KafkaError as error:
            log.info("copying batches out of old segments is put off: %s", error.message)
        except Exception:
            log.exception("copying batches out of old segments failed; it is tried again later")

    def _next_step(self) -> Step | None:
        return next_step(self._usages(), self._store.newest_segment.live_bytes)

    async def _roll_if_waited_for(self) -> None:
        """Without fsync what was copied goes only once the copies are sealed."""
        newest = self._store.newest_segment
        if self._rewriting.is_waited_for(newest) and should_roll(
            list(self._usages()), newest.live_bytes
        ):
            await self._store.roll()

    def _usages(self) -> Iterator[Usage]:
        kept = self._rewriting.kept_bytes()
        newest_id = self._store.newest_segment.id
        for segment in self._store.segments.values():
            live_bytes = segment.live_bytes - kept[segment.id]
            is_hopeless = self._given_up.get(segment.id) == segment.live_bytes
            if segment.is_sealed and segment.id < newest_id and not is_hopeless:
                yield Usage(segment.id, segment.stored_bytes, live_bytes)

    async def _empty(self, segment: Segment, *, rests: bool) -> None:
        """Copy forward what lives in ``segment``."""
        before = self.copied_bytes
        piece: list[tuple[PartitionLog, list[Placed]]] = []
        size = 0
        for number, each in enumerate(tuple(self._store.logs.values())):
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
        if segment.live_bytes > self._rewriting.kept_bytes()[segment.id]:
            self._given_up[segment.id] = segment.live_bytes
        await self._roll_if_waited_for()

    async def _copy(
        self,
        segment: Segment,
        piece: Sequence[tuple["PartitionLog", list[Placed]]],
        *,
        rests: bool,
    ) -> None:
        """Read a piece in a thread, have it written, and rest."""
        self._store.check_writable()
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        reading = self._readers.submit(_read, segment, piece)
        read = await asyncio.wrap_future(reading)
        rewrites: list[Rewrite] = []
        for (each, old), found in zip(piece, read, strict=True):
            if segment.id not in self._store.segments:
                return  # All of it died, and its file is gone.
            if isinstance(found, DamagedBatch):
                self._store.on_damaged(each, found)
            else:
                rewrites.append(Rewrite(each, old, found))
        done = await self._rewriting.rewrite(rewrites)
        for rewrite, was_done in zip(rewrites, done, strict=True):
            self.copied_bytes += was_done * sum(placed.size for placed in rewrite.old)
        if rests:
            await asyncio.sleep(REST * (clock() - begun_s))


def _parts(run: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Successive batches, about a piece each time."""
    part: list[Placed] = []
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
    segment: Segment, piece: Sequence[tuple["PartitionLog", list[Placed]]]
) -> list[list[Batch] | DamagedBatch]:
    return [_batches(segment, each.number, old) for each, old in piece]


def _batches(segment: Segment, number: int, old: Sequence[Placed]) -> list[Batch] | DamagedBatch:
    """The batches as they are stored, each in one piece."""
    try:
        chunks = iter(segment.read(number, [(each.base_offset, each.size) for each in old]))
    except DamagedBatch as damaged:
        return damaged
    found: list[Batch] = []
    for placed in old:
        data = memoryview(b"".join(islice(chunks, -(-placed.size // CHUNK_BYTES))))
        found.append(Batch(read_header(data), data))
    return found
