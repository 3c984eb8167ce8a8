"""``SharePartition``: the state machine of a share-partition at its leader (KIP-932).

The following rules hold, in whatever order events arrive:

- A record has at most one member at a time, from when it is handed out until that member
  acknowledges or releases it, or its lock ends.
- What is acknowledged changes only when the share coordinator has written it. Nobody else gets the
  records in between, and the member is answered afterwards.
- A final record, acknowledged or archived, is never handed out again.
- The delivery count of a record never falls, so states of a record can be put in order: whatever
  comes late to the share coordinator does not undo what it has.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.state.acknowledgements import (
    RENEW,
    STATE_OF,
    AcknowledgementBatch,
)
from quorate.broker.coordinator.share.state.acquiring import Acquiring
from quorate.broker.coordinator.share.state.record_state import (
    NEVER_MS,
    RecordRange,
    RecordState,
    StateBatch,
)
from quorate_proto.v1 import errors_pb2


class Change(NamedTuple):
    """A change that the share coordinator is to write. ``committed`` or ``failed`` follows.

    ``start_offset`` and ``final_records`` are those of the time when it is in force.
    """

    ranges: Sequence[RecordRange]
    batches: Sequence[StateBatch]
    start_offset: int
    final_records: int


class SharePartition(Acquiring):
    """One share-partition, as its leader has it."""

    # -- acknowledging ---------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> Change | None:
        """Take what a member says of records; all of it is taken, or nothing.

        Return the change to write, or None if there is nothing to write. Records that are no longer
        part of the partition are passed over.

        Raises:
            KafkaError: INVALID_RECORD_STATE, the member does not have one of the records.
        """
        runs = [run for batch in batches for run in batch.runs() if run[1] >= self.window.start]
        for first, last, kind in runs:
            self._check_held(member_id, max(first, self.window.start), last)
            if kind == RENEW and not self.limits.renews:
                raise _refusal("renewing locks is not enabled (share.renew.acknowledge.enable)")
        changed: list[RecordRange] = []
        until_ms = now_ms + self.limits.lock_duration_ms
        for first, last, kind in runs:
            ranges = self.window.cut(max(first, self.window.start), last)
            for one in ranges:
                if kind == RENEW:
                    one.locked_until_ms = until_ms
                else:
                    one.becoming = self._after(one, STATE_OF[kind])
                    changed.append(one)
            if kind == RENEW:
                self._wake_by(until_ms)
        return self._change(changed)

    def release(self, member_id: str) -> Change | None:
        """Have a member give back everything that it has, because its session is over."""
        held = [one for one in self.window if one.is_locked and one.member_id == member_id]
        for one in held:
            one.becoming = self._after(one, RecordState.AVAILABLE)
        return self._change(held)

    def committed(self, change: Change) -> None:
        """Note that a change is written."""
        for one in change.ranges:
            assert one.becoming is not None, "a change ends once"
            one.enter(one.becoming)
        self.window.settle(change.ranges)

    def failed(self, change: Change, now_ms: int) -> None:
        """Note that a change is not written, or that nobody knows: the member still has the
        records, unless its lock has ended."""
        for one in change.ranges:
            one.becoming = None
            if one.locked_until_ms <= now_ms:
                one.enter(self._after(one, RecordState.AVAILABLE))
            else:
                self._wake_by(one.locked_until_ms)
        self.window.settle(change.ranges)

    def _check_held(self, member_id: str, first: int, last: int) -> None:
        if last >= self.window.end:
            raise _refusal(f"offset {last} was not handed out")
        for one in self.window.overlapping(first, last):
            if not one.is_locked or one.member_id != member_id:
                at = max(first, one.first)
                raise _refusal(f"member {member_id!r} does not have the record at offset {at}")

    def _after(self, one: RecordRange, state: RecordState) -> RecordState:
        """Return the state that records come to: what was delivered too often is archived."""
        is_too_often = one.delivery_count >= self.limits.delivery_count_limit
        if state is RecordState.AVAILABLE and is_too_often:
            return RecordState.ARCHIVED
        return state

    def _change(self, ranges: Sequence[RecordRange]) -> Change | None:
        if not ranges:
            return None
        start = self.window.start_after(ranges)
        batches = [
            StateBatch(one.first, one.last, one.becoming, one.delivery_count)
            for one in ranges
            if one.becoming is not None and one.last >= start
        ]
        return Change(ranges, joined(batches), start, self.window.final_records(start))

    # -- time ------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> Change | None:
        """End the locks that are too old. The records are available at once.

        The shell calls this when ``next_deadline_ms`` is reached. The change that is returned is in
        force already, so it has no ranges: it tells the next leader how often the records were
        delivered.
        """
        late = [one for one in self.window if one.is_locked and one.locked_until_ms <= now_ms]
        batches = []
        for one in late:
            one.enter(self._after(one, RecordState.AVAILABLE))
            batches.append(StateBatch(one.first, one.last, one.state, one.delivery_count))
        self.window.settle(late)
        locks = (one.locked_until_ms for one in self.window if one.is_locked)
        self.next_deadline_ms = self._look_ahead(min(locks, default=NEVER_MS), now_ms)
        if not late:
            return None
        start = self.window.start
        left = joined(batch for batch in batches if batch.last >= start)
        return Change((), left, start, self.window.final_records(start))

    def log_begins_at(self, offset: int) -> None:
        """Note that the log has no records before ``offset``."""
        self.window.begin_at(offset)
        self.window.settle(())


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Return the batches with neighbours of the same state in one."""
    result: list[StateBatch] = []
    for batch in batches:
        before = result[-1] if result else None
        if before is not None and before[1] + 1 == batch.first and before[2:] == batch[2:]:
            result[-1] = before._replace(last=batch.last)
        else:
            result.append(batch)
    return result


def _refusal(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_RECORD_STATE, message)
