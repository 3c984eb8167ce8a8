"""How a share-partition hands records out (KIP-932).

Records that came back are handed out again before new ones. By default the limit of records may be
exceeded to the end of a record batch, so that whole batches are handed out; members that ask for it
get no record more than they want (KIP-1206).

Records that are delivered again and again are handed out in ever smaller parts, and at last one by
one: so the one that members fail at takes no others with it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from quorate.broker.coordinator.share.state.record_state import (
    NEVER_MS,
    AcquiredRecords,
    Condition,
    RecordRange,
    RecordState,
)
from quorate.broker.coordinator.share.state.record_window import RecordWindow

_RANGES_PER_MS: Final = 100
"""A window of many ranges looks for ended locks at most once in a number of milliseconds, one for
each 100 ranges."""
_FEWEST_DELIVERIES_TO_SLOW_DOWN: Final = 2


_NEW: Final = Condition(RecordState.AVAILABLE)
"""The condition of records that nobody had yet."""


class ShareLimits(NamedTuple):
    """The limits of a share group, from its configuration."""

    lock_duration_ms: int
    delivery_count_limit: int
    max_record_locks: int
    """The most records from the first that is not final to the last that was handed out."""
    renews: bool = True
    has_dead_letters: bool = False
    """Whether records that are rejected or delivered too often need dead letters (KIP-1191)."""


class ReadBatch(NamedTuple):
    """A record batch that was read. ``is_hidden`` says that members must not see its records,
    because they belong to an aborted transaction."""

    first: int
    last: int
    is_hidden: bool = False


class Wanted(NamedTuple):
    """What a member asks for."""

    member_id: str
    max_records: int
    batch_size: int
    is_exact: bool = False
    """Whether ``max_records`` may not be exceeded to the end of a record batch."""


class Acquiring:
    """The part of a share-partition that hands records out."""

    def __init__(self, window: RecordWindow, limits: ShareLimits) -> None:
        self.window = window
        self.limits = limits
        self.next_deadline_ms = NEVER_MS
        """The time before which ``expire`` has nothing to do."""

    def set_limits(self, limits: ShareLimits) -> None:
        """Take other limits; locks that are held keep their time."""
        self.limits = limits

    def fetch_offset(self) -> int | None:
        """Return the offset to read from, or None if nothing may be handed out now."""
        available = self.window.first_available()
        if available is not None:
            return available
        return self.window.end if self.window.records < self.limits.max_record_locks else None

    def acquire(
        self, wanted: Wanted, batches: Sequence[ReadBatch], now_ms: int
    ) -> list[AcquiredRecords]:
        """Hand records of ``batches`` to a member. They were read in order from ``fetch_offset``
        on, and the first of them may begin before it."""
        if not batches or wanted.max_records <= 0 or batches[-1].last < self.window.start:
            return []
        self._hide(batches)
        taking = _Taking(self, wanted, batches, now_ms + self.limits.lock_duration_ms)
        taking.from_window()
        if not taking.is_over:
            taking.from_log()
        self._wake_by(taking.until_ms if taking.taken else NEVER_MS)
        self.window.advance()
        return taking.result()

    def _hide(self, batches: Sequence[ReadBatch]) -> None:
        """Archive the available records that members must not see."""
        for batch in batches:
            if batch.is_hidden:
                for one in self.window.available(batch.first, batch.last):
                    hidden = one.condition.entered(RecordState.ARCHIVED)
                    self.window.put(one.first, one.last, hidden)
        self.window.advance()

    def _wake_by(self, deadline_ms: int) -> None:
        self.next_deadline_ms = min(self.next_deadline_ms, deadline_ms)

    def _look_ahead(self, deadline_ms: int, now_ms: int) -> int:
        if deadline_ms == NEVER_MS:
            return NEVER_MS
        return max(deadline_ms, now_ms + max(1, len(self.window) // _RANGES_PER_MS))


class _Taking:
    """Hands records of one read to one member."""

    def __init__(
        self, partition: Acquiring, wanted: Wanted, batches: Sequence[ReadBatch], until_ms: int
    ) -> None:
        self._window = partition.window
        self._limits = partition.limits
        self._wanted = wanted
        self._batches = batches
        self._left = wanted.max_records
        self.until_ms = until_ms
        self.taken: list[AcquiredRecords] = []
        self.is_over = False

    def from_window(self) -> None:
        """Hand out records that came back."""
        last_read = self._batches[-1].last
        for one in self._window.available(self._batches[0].first, last_read):
            allowed = self._allowed(one)
            if allowed is not None and self.taken:
                self.is_over = True
                return
            last = min(one.last, self._last_for(one.first, self._left))
            if allowed is not None:
                last = min(last, one.first + allowed - 1)
            self._hand_out(one._replace(last=last))
            if self._left <= 0 or allowed is not None:
                self.is_over = True
                return

    def _allowed(self, one: RecordRange) -> int | None:
        """Return how many records of a range that was delivered often may be handed out at once,
        or None if all may."""
        limit = self._limits.delivery_count_limit
        delivered = one.condition.delivery_count
        slow_from = max(_FEWEST_DELIVERIES_TO_SLOW_DOWN, -(-limit // 2))
        if delivered < slow_from:
            return None
        if limit > _FEWEST_DELIVERIES_TO_SLOW_DOWN and delivered >= limit - 1:
            return 1
        return max(1, self._batch_of(one.first).records >> (delivered - slow_from + 1))

    def from_log(self) -> None:
        """Hand out records that nobody had before."""
        window = self._window
        room = min(self._left, self._limits.max_record_locks - window.records)
        locked = self._locked(_NEW)
        for batch in self._batches:
            if batch.last < window.end:
                continue
            if room <= 0:
                return
            if batch.is_hidden or batch.first > window.end:
                # These offsets have no records for members.
                passed = batch.last if batch.is_hidden else batch.first - 1
                window.append(passed, _NEW.entered(RecordState.ARCHIVED))
            if batch.is_hidden:
                continue
            last = min(batch.last, window.end + room - 1) if self._wanted.is_exact else batch.last
            room -= last - window.end + 1
            self.taken.append(AcquiredRecords(window.end, last, locked.delivery_count))
            window.append(last, locked)

    def _hand_out(self, one: RecordRange) -> None:
        locked = self._locked(one.condition)
        self._window.put(one.first, one.last, locked)
        self.taken.append(AcquiredRecords(one.first, one.last, locked.delivery_count))
        self._left -= one.records

    def _locked(self, condition: Condition) -> Condition:
        return condition.locked(self._wanted.member_id, self.until_ms)

    def _last_for(self, first: int, count: int) -> int:
        """Return the last of ``count`` records from ``first`` on, or that of its record batch."""
        last = first + count - 1
        return last if self._wanted.is_exact else max(last, self._batch_of(last).last)

    def _batch_of(self, offset: int) -> "_Span":
        for batch in self._batches:
            if batch.last >= offset:
                return _Span(batch.first, batch.last)
        return _Span(offset, offset)

    def result(self) -> list[AcquiredRecords]:
        """Return what was handed out, in batches of about the size that the member asks for."""
        together: list[AcquiredRecords] = []
        for one in self.taken:
            before = together[-1] if together else None
            is_next = before is not None and before.last + 1 == one.first
            if before is not None and is_next and before.delivery_count == one.delivery_count:
                together[-1] = before._replace(last=one.last)
            else:
                together.append(one)
        return [part for one in together for part in self._parts(one)]

    def _parts(self, acquired: AcquiredRecords) -> Iterator[AcquiredRecords]:
        """Yield the records in parts that end where record batches do."""
        first, size = acquired.first, self._wanted.batch_size
        if acquired.records > size:
            for batch in self._batches:
                if first + size - 1 <= batch.last < acquired.last:
                    yield acquired._replace(first=first, last=batch.last)
                    first = batch.last + 1
        yield acquired._replace(first=first)


class _Span(NamedTuple):
    first: int
    last: int

    @property
    def records(self) -> int:
        return self.last - self.first + 1
