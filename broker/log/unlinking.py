"""Segments in which nothing lives: their files are unlinked, and with that there is room."""

import logging
from collections import deque
from collections.abc import Callable, Iterable

from broker.log.housekeeping import Housekeeping
from broker.log.room import Reserve
from broker.log.segment import Segment
from broker.log.table import StoreTable

log = logging.getLogger(__name__)


class Unlinking:
    """Of one store's ``segments``, by id; what is unlinked is taken out of them.

    On a full disk not even that a segment is gone may find room: then it is tried again later.
    """

    def __init__(
        self,
        segments: dict[int, Segment],
        newest: Callable[[], Segment],
        table: StoreTable,
        housekeeping: Housekeeping,
        reserve: Reserve,
    ) -> None:
        """``newest``: the segment that is written."""
        self._segments = segments
        self._newest = newest
        self._table = table
        self._housekeeping = housekeeping
        self._reserve = reserve
        self._no_room: deque[Segment] = deque()

    def look_at(self, candidates: Iterable[Segment]) -> None:
        """Remove those that are sealed and in which nothing lives."""
        for segment in candidates:
            sealed = segment.id < self._newest().id
            if sealed and not segment.live_batches and segment.id in self._segments:
                del self._segments[segment.id]
                threads = self._housekeeping
                thread = threads.unlinking if segment.is_sealed else threads.behind
                thread.submit(self._unlink, segment)

    def try_again(self) -> None:
        """There is room."""
        while self._no_room:
            self._housekeeping.behind.submit(self._unlink, self._no_room.popleft())

    def _unlink(self, segment: Segment) -> None:
        try:
            self._table.forget_segments([segment.id])
            segment.unlink()
            log.info("log segment %d unlinked: nothing lived in it", segment.id)
        except Exception as error:
            if self._reserve.explains(error):
                self._no_room.append(segment)
            else:
                log.exception("cannot unlink log segment %s", segment.path)
