"""The segments of a store: which ones exist, the live batches of each, and when their files are
deleted.

A segment is deleted as a whole, once it is sealed and holds no live batch. Its file is unlinked
then, which frees the space. A segment that is written without fsync is lost in a power loss until
it is sealed. The older versions of batches that were copied into it are kept for as long.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable

from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.segments.batch_index import Forgotten
from quorate.broker.log.segments.segment import Segment
from quorate.broker.log.writing.disk_space import DiskReserve
from quorate.broker.log.writing.housekeeping import Housekeeping

log = logging.getLogger(__name__)


class LiveSegments:
    """Every segment of one store by id, without those that were unlinked."""

    def __init__(
        self,
        by_id: dict[int, Segment],
        newest: Segment,
        table: StoreTable,
        housekeeping: Housekeeping,
        reserve: DiskReserve,
        on_less_lives: Callable[[], None],
    ) -> None:
        """``on_less_lives`` is called when there may be something to copy forward: batches became
        dead, a segment was sealed, or there is space again."""
        self.by_id = by_id
        self.newest = newest
        """The active segment, which is the only one that is written."""
        self.kept: deque[tuple[Segment, Forgotten]] = deque()
        """Segments with copies, in the order in which they were written, and the older versions
        that are kept until each segment is durable."""
        self._table = table
        self._housekeeping = housekeeping
        self._reserve = reserve
        self._on_less_lives = on_less_lives
        self._no_room: deque[Segment] = deque()
        """Segments whose end was not recorded because the disk was full."""

    def roll(self, segment: Segment) -> None:
        """Record that ``segment`` is the active segment from now on."""
        sealed, self.newest = self.newest, segment
        self.by_id[segment.id] = segment
        self._unlink_dead([sealed])
        self._on_less_lives()

    def release(self, forgotten: Forgotten) -> None:
        """Record that no log has these batches any more. Segments that hold no live batch then are
        deleted."""
        for segment, count, size in forgotten:
            segment.release(count, size)
        self._unlink_dead(segment for segment, _, _ in forgotten)
        self._on_less_lives()

    def keep_until_durable(self, segment: Segment, forgotten: Forgotten) -> None:
        """Release the batches that ``segment`` has copies of, once it is durable. That may be at
        once."""
        self.kept.append((segment, forgotten))
        self.release_durable()

    def release_durable(self) -> None:
        """Release the batches whose copies are durable by now."""
        while self.kept and not self.kept[0][0].is_volatile:
            self.release(self.kept.popleft()[1])

    def is_waited_for(self, segment: Segment) -> bool:
        """Return whether batches are kept until ``segment`` is durable."""
        return any(each is segment and forgotten for each, forgotten in self.kept)

    def kept_bytes(self) -> Counter[int]:
        """Return per segment id how many bytes are already copied to another segment."""
        kept: Counter[int] = Counter()
        for _, forgotten in self.kept:
            for segment, _, size in forgotten:
                kept[segment.id] += size
        return kept

    def unlink_what_found_no_room(self) -> None:
        """Unlink the segments that could not be unlinked while the disk was full."""
        while self._no_room:
            self._housekeeping.behind.submit(self._unlink, self._no_room.popleft())
        self._on_less_lives()

    def _unlink_dead(self, candidates: Iterable[Segment]) -> None:
        """Delete the sealed segments that hold no live batch."""
        for segment in candidates:
            sealed = segment.id < self.newest.id
            if sealed and not segment.live_batches and segment.id in self.by_id:
                del self.by_id[segment.id]
                threads = self._housekeeping
                thread = threads.unlinking if segment.is_sealed else threads.behind
                thread.submit(self._unlink, segment)

    def _unlink(self, segment: Segment) -> None:
        """Remove a segment from the table and delete its file, in a housekeeping thread.

        On a full disk even the removal from the table may find no space. It is then tried again
        later.
        """
        try:
            self._table.forget_segments([segment.id])
            segment.unlink()
            log.info("log segment %d unlinked: nothing lived in it", segment.id)
        except Exception as error:
            if self._reserve.explains(error):
                self._no_room.append(segment)
            else:
                log.exception("cannot unlink log segment %s", segment.path)
