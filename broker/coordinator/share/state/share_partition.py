"""``SharePartition``: the state machine of a share-partition at its leader (KIP-932).

The following rules hold, in whatever order events arrive:

- A record has at most one member at a time, from when it is handed out until that member
  acknowledges or releases it, or its lock ends.
- What is acknowledged changes only when the share coordinator has written it. Nobody else gets the
  records in between, and the member is answered afterwards.
- A final record, acknowledged or archived, is never handed out again.
- The delivery count of a record never falls, so states of a record can be put in order: whatever
  comes late to the share coordinator does not undo what it has.
- In a group with a dead letter topic (KIP-1191), a record that is rejected or was delivered too
  often is archived only when its dead letter is written. Until then it belongs to nobody else; if
  that fails, the record stays in the group and is delivered again.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.state.acknowledgements import (
    REJECT,
    RELEASE,
    RENEW,
    STATE_OF,
    AcknowledgementBatch,
)
from quorate.broker.coordinator.share.state.acquiring import Acquiring
from quorate.broker.coordinator.share.state.dead_records import DeadRecords, DeathReason
from quorate.broker.coordinator.share.state.record_state import (
    NEVER_MS,
    Condition,
    RecordRange,
    RecordState,
    StateBatch,
)
from quorate_proto.v1 import errors_pb2

_AVAILABLE: Final = RecordState.AVAILABLE


class Change(NamedTuple):
    """A change that the share coordinator is to write. ``committed`` or ``failed`` follows.

    ``start_offset`` and ``final_records`` are those of the time when it is in force. ``dead`` are
    the records whose dead letters are to be written before.
    """

    ranges: Sequence[RecordRange]
    batches: Sequence[StateBatch]
    start_offset: int
    final_records: int
    dead: Sequence[DeadRecords] = ()


class SharePartition(Acquiring):
    """One share-partition, as its leader has it."""

    # -- acknowledging ---------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> list[Change]:
        """Take what a member says of records; all of it is taken, or nothing.

        Return the changes to write; none waits for another. Records that are no longer part of the
        partition are passed over.

        Raises:
            KafkaError: INVALID_RECORD_STATE, the member does not have one of the records.
        """
        runs = [run for batch in batches for run in batch.runs() if run[1] >= self.window.start]
        for first, last, kind in runs:
            self._check_held(member_id, max(first, self.window.start), last)
            if kind == RENEW and not self.limits.renews:
                raise _refusal("renewing locks is not enabled (share.renew.acknowledge.enable)")
        changing = _Changing(self)
        until_ms = now_ms + self.limits.lock_duration_ms
        for first, last, kind in runs:
            for one in self.window.between(first, last):
                if kind == RENEW:
                    renewed = one.condition._replace(locked_until_ms=until_ms)
                    self.window.put(one.first, one.last, renewed)
                else:
                    changing.begin(one, kind)
            if kind == RENEW:
                self._wake_by(until_ms)
        return changing.changes()

    def release(self, member_id: str) -> list[Change]:
        """Have a member give back everything that it has, because its session is over."""
        changing = _Changing(self)
        for one in list(self.window):
            if one.condition.is_locked and one.condition.member_id == member_id:
                changing.begin(one, RELEASE)
        return changing.changes()

    def committed(self, change: Change) -> None:
        """Note that a change is written."""
        for first, last, condition in change.ranges:
            self.window.put(first, last, condition.entered(condition.coming))
        self.window.advance()

    def failed(self, change: Change, now_ms: int) -> None:
        """Note that a change is not written, or that nobody knows: the member still has the
        records, unless its lock has ended."""
        for first, last, condition in change.ranges:
            if condition.locked_until_ms <= now_ms:
                held = condition.entered(self._without_write(condition))
            else:
                held = condition._replace(becoming=None)
                self._wake_by(condition.locked_until_ms)
            self.window.put(first, last, held)
        self.window.advance()

    def _check_held(self, member_id: str, first: int, last: int) -> None:
        if last >= self.window.end:
            raise _refusal(f"offset {last} was not handed out")
        for one in self.window.between(first, last):
            if not one.condition.is_locked or one.condition.member_id != member_id:
                raise _refusal(
                    f"member {member_id!r} does not have the record at offset {one.first}"
                )

    def after(self, condition: Condition, state: RecordState) -> RecordState:
        """Return the state that records come to: what was delivered too often is archived."""
        is_too_often = condition.delivery_count >= self.limits.delivery_count_limit
        if state is _AVAILABLE and is_too_often:
            return RecordState.ARCHIVED
        return state

    def _without_write(self, condition: Condition) -> RecordState:
        """Return the state that records come to at once when their lock has ended."""
        if self.limits.has_dead_letters:
            return _AVAILABLE
        return self.after(condition, _AVAILABLE)

    def change_of(
        self, ranges: Sequence[RecordRange], dead: Sequence[DeadRecords] = ()
    ) -> Iterator[Change]:
        """Yield the change that is to be written for ranges that are ``becoming`` something."""
        if not ranges:
            return
        start = self.window.start_after(ranges)
        batches = [
            StateBatch(one.first, one.last, one.condition.coming, one.condition.delivery_count)
            for one in ranges
            if one.last >= start
        ]
        yield Change(ranges, joined(batches), start, self.window.final_records(start), dead)

    # -- time ------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[Change]:
        """End the locks that are too old. The records are available at once.

        The shell calls this when ``next_deadline_ms`` is reached. The first change is in force
        already, so it has no ranges: it tells the next leader how often the records were delivered.
        Records that need dead letters are in a change of their own.
        """
        dying = _Changing(self)
        batches = []
        for one in list(self.window):
            condition = one.condition
            if not condition.is_locked or condition.locked_until_ms > now_ms:
                continue
            if self.limits.has_dead_letters and self.after(condition, _AVAILABLE).is_final:
                dying.begin(one, RELEASE)
            else:
                state = self._without_write(condition)
                self.window.put(one.first, one.last, condition.entered(state))
                batches.append(StateBatch(one.first, one.last, state, condition.delivery_count))
        self.window.advance()
        conditions = (one.condition for one in self.window)
        locks = (one.locked_until_ms for one in conditions if one.is_locked)
        self.next_deadline_ms = self._look_ahead(min(locks, default=NEVER_MS), now_ms)
        changes = dying.changes()
        if batches:
            start = self.window.start
            left = joined(batch for batch in batches if batch.last >= start)
            in_force = Change((), left, start, self.window.final_records(start))
            changes.insert(0, in_force)
        return changes

    def log_begins_at(self, offset: int) -> None:
        """Note that the log has no records before ``offset``."""
        if offset > self.window.start:
            self.window.begin_at(offset)
            self.window.advance()


class _Changing:
    """The ranges whose state is about to change: those that need dead letters, and the others.

    Two changes are written for them, so that what is accepted does not wait for a dead letter.
    """

    def __init__(self, partition: SharePartition) -> None:
        self._partition = partition
        self._plain: list[RecordRange] = []
        self._dying: list[RecordRange] = []
        self._dead: list[DeadRecords] = []
        self._conditions: dict[tuple[Condition, RecordState], Condition] = {}

    def begin(self, one: RecordRange, kind: int) -> None:
        """Begin to change a range as an acknowledgement of ``kind`` says."""
        condition = one.condition
        becoming = self._partition.after(condition, STATE_OF[kind])
        changing = RecordRange(one.first, one.last, self._condition(condition, becoming))
        self._partition.window.put(*changing)
        reason = self._reason(becoming, kind)
        if reason is None:
            self._plain.append(changing)
        else:
            self._dying.append(changing)
            self._dead.append(DeadRecords(one.first, one.last, condition.delivery_count, reason))

    def _condition(self, condition: Condition, becoming: RecordState) -> Condition:
        """Return a condition that is ``becoming`` a state: for ranges that were in the same
        condition it is the same object, so thousands of them take little memory."""
        known = self._conditions.get((condition, becoming))
        if known is None:
            known = condition._replace(becoming=becoming)
            self._conditions[condition, becoming] = known
        return known

    def _reason(self, becoming: RecordState, kind: int) -> DeathReason | None:
        """Return why records need a dead letter, or None. A gap has no record."""
        if not self._partition.limits.has_dead_letters or becoming is not RecordState.ARCHIVED:
            return None
        if kind == REJECT:
            return DeathReason.REJECTED
        return DeathReason.DELIVERED_TOO_OFTEN if kind == RELEASE else None

    def changes(self) -> list[Change]:
        """Return the changes to write."""
        change_of = self._partition.change_of
        return [*change_of(self._plain), *change_of(self._dying, self._dead)]


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
