"""A share-partition against a simple model, which has a state for each record."""

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.share.state.acknowledgements import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementBatch,
)
from quorate.broker.coordinator.share.state.acquiring import ReadBatch, ShareLimits, Wanted
from quorate.broker.coordinator.share.state.record_state import RecordState, StateBatch
from quorate.broker.coordinator.share.state.record_window import RecordWindow, window_of
from quorate.broker.coordinator.share.state.share_partition import Change, SharePartition
from quorate.broker.coordinator.share.state.stored_state import StateWrite, StoredShareState

LOCK_MS = 100
LIMIT = 4
LIMITS = ShareLimits(LOCK_MS, LIMIT, max_record_locks=40)
MEMBERS = ("a", "b", "c")
KINDS = st.sampled_from([ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW])


@dataclass
class Record:
    """What the model knows of one record."""

    state: RecordState = RecordState.AVAILABLE
    deliveries: int = 0
    member: str = ""
    until_ms: int = 0
    writing: bool = False
    answered: bool = False
    """Whether a member was told that the record is final."""


class SharePartitionAtRandom(RuleBasedStateMachine):
    """Members acquire, acknowledge and fall silent; writes succeed, fail and come late; leaders
    change."""

    limits = LIMITS

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[ReadBatch] = []
        self.records: list[Record] = []
        self.start_of_log = 0
        self.stored = StoredShareState(0)
        self.share = SharePartition(RecordWindow(0), self.limits)
        self.writing: list[tuple[Change, dict[int, RecordState]]] = []
        self.late: list[StateWrite] = []
        self.dead: set[int] = set()
        """The records whose dead letters are written."""

    # -- the log ---------------------------------------------------------------------------------

    @initialize(sizes=st.lists(st.integers(1, 6), min_size=4, max_size=8))
    def fill(self, sizes: list[int]) -> None:
        for size in sizes:
            self.append(size, hidden=False)

    @rule(size=st.integers(1, 6), hidden=st.booleans())
    def append(self, size: int, hidden: bool) -> None:
        first = len(self.records)
        self.log.append(ReadBatch(first, first + size - 1, hidden))
        self.records += [Record() for _ in range(size)]

    @rule(by=st.integers(1, 3))
    def begin_later(self, by: int) -> None:
        self.start_of_log = min(self.start_of_log + by, len(self.records))
        self.share.log_begins_at(self.start_of_log)

    # -- members ---------------------------------------------------------------------------------

    @rule(
        member=st.sampled_from(MEMBERS),
        count=st.integers(1, 12),
        exact=st.booleans(),
        read=st.integers(1, 5),
    )
    def acquire(self, member: str, count: int, exact: bool, read: int) -> None:
        at = self.share.fetch_offset()
        if at is None:
            return
        batches = [batch for batch in self.log if batch.last >= at][:read]
        given = self.share.acquire(Wanted(member, count, count, exact), batches, self.now_ms)
        total = 0
        for one in given:
            for offset in range(one.first, one.last + 1):
                record = self.records[offset]
                assert offset >= self.start_of_log
                assert record.state is RecordState.AVAILABLE, "one member at a time"
                assert not record.writing
                assert not record.answered, "what is final is not handed out"
                assert not any(b.is_hidden and b.first <= offset <= b.last for b in self.log)
                record.deliveries += 1
                assert record.deliveries == one.delivery_count
                assert record.deliveries <= LIMIT or self.limits.has_dead_letters
                record.state, record.member = RecordState.ACQUIRED, member
                record.until_ms = self.now_ms + LOCK_MS
                total += 1
        assert not exact or total <= count

    @precondition(lambda self: any(one.condition.is_locked for one in self.share.window))
    @rule(kind=KINDS, data=st.data())
    def acknowledge(self, kind: int, data: st.DataObject) -> None:
        held = [one for one in self.share.window if one.condition.is_locked]
        one = held[data.draw(st.integers(0, len(held) - 1))]
        first = data.draw(st.integers(one.first, one.last))
        last = data.draw(st.integers(first, one.last))
        self._acknowledge(one.condition.member_id, kind, first, last)

    @precondition(lambda self: self.records)
    @rule(member=st.sampled_from(MEMBERS), kind=KINDS, data=st.data())
    def acknowledge_anything(self, member: str, kind: int, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.records) - 1))
        last = data.draw(st.integers(first, min(len(self.records) - 1, first + 8)))
        self._acknowledge(member, kind, first, last)

    def _acknowledge(self, member: str, kind: int, first: int, last: int) -> None:
        begin = max(first, self.share.window.start)
        held = all(
            record.state is RecordState.ACQUIRED and record.member == member and not record.writing
            for record in self.records[begin : last + 1]
        )
        batches = [AcknowledgementBatch(first, last, bytes([kind]))]
        try:
            changes = self.share.acknowledge(member, batches, self.now_ms)
        except KafkaError:
            assert not held
            return
        assert held
        if kind == RENEW:
            for record in self.records[begin : last + 1]:
                record.until_ms = self.now_ms + LOCK_MS
            assert not changes
            return
        state = {
            ACCEPT: RecordState.ACKNOWLEDGED,
            REJECT: RecordState.ARCHIVED,
            RELEASE: RecordState.AVAILABLE,
        }[kind]
        self._begin(changes, {offset: state for offset in range(begin, last + 1)})

    @precondition(lambda self: any(one.condition.is_locked for one in self.share.window))
    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        held = {
            offset: RecordState.AVAILABLE
            for offset, record in enumerate(self.records)
            if record.state is RecordState.ACQUIRED
            and record.member == member
            and not record.writing
            and offset >= self.share.window.start
        }
        self._begin(self.share.release(member), held)

    def _begin(self, changes: list[Change], states: dict[int, RecordState]) -> None:
        assert bool(changes) is bool(states)
        for offset in states:
            self.records[offset].writing = True
        for change in changes:
            of_change = {
                offset: states[offset]
                for one in change.ranges
                for offset in range(one.first, one.last + 1)
            }
            self.writing.append((change, of_change))

    # -- writes ----------------------------------------------------------------------------------

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), how=st.sampled_from(["written", "lost", "late"]))
    def end_write(self, data: st.DataObject, how: str) -> None:
        change, states = self.writing.pop(data.draw(st.integers(0, len(self.writing) - 1)))
        write = self._write_of(change)
        dead = {at for one in change.dead for at in range(one.first, one.last + 1)}
        if how != "lost":
            self.dead |= dead
        if how == "written":
            self.stored.take(write)
            self.share.committed(change)
        else:
            if how == "late":
                self.late.append(write)
            self.share.failed(change, self.now_ms)
        for offset, state in states.items():
            record = self.records[offset]
            record.writing = False
            if how == "written":
                record.state = self._after(record, state)
                record.answered = record.state.is_final
                is_dead = record.state is RecordState.ARCHIVED and self.limits.has_dead_letters
                assert (offset in dead) is is_dead, "archived after its dead letter"
            elif record.until_ms <= self.now_ms:
                record.state = self._at_once(record)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def write_comes_late(self, data: st.DataObject) -> None:
        self.stored.take(self.late.pop(data.draw(st.integers(0, len(self.late) - 1))))

    def _write_of(self, change: Change) -> StateWrite:
        return StateWrite(0, 0, change.start_offset, change.final_records, change.batches)

    @staticmethod
    def _after(record: Record, state: RecordState) -> RecordState:
        if state is RecordState.AVAILABLE and record.deliveries >= LIMIT:
            return RecordState.ARCHIVED
        return state

    def _at_once(self, record: Record) -> RecordState:
        """Return the state that a record comes to when its lock ends and nothing is written."""
        if self.limits.has_dead_letters:
            return RecordState.AVAILABLE
        return self._after(record, RecordState.AVAILABLE)

    # -- time and leaders ------------------------------------------------------------------------

    @rule(by_ms=st.sampled_from([1, 10, 50, 60, LOCK_MS]))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        if self.share.next_deadline_ms > self.now_ms:
            assert not any(
                record.state is RecordState.ACQUIRED
                and record.until_ms < self.now_ms
                and not record.writing
                and offset >= self.share.window.start
                for offset, record in enumerate(self.records)
            )
        changes = self.share.expire(self.now_ms)
        dying: dict[int, RecordState] = {}
        for offset, record in enumerate(self.records):
            is_late = record.until_ms <= self.now_ms
            if record.state is RecordState.ACQUIRED and is_late and not record.writing:
                after = self._after(record, RecordState.AVAILABLE)
                if after.is_final and self.limits.has_dead_letters:
                    if offset >= self.share.window.start:
                        dying[offset] = RecordState.AVAILABLE
                else:
                    record.state = after
        for change in changes:
            if not change.ranges:
                self.stored.take(self._write_of(change))
        self._begin([change for change in changes if change.ranges], dying)

    @rule()
    def change_leader(self) -> None:
        """The next leader knows what is stored alone; late writes of the former are refused."""
        self.writing.clear()
        self.late.clear()
        window = window_of(self.stored.start_offset, self.stored.batches)
        self.share = SharePartition(window, self.limits)
        self.share.log_begins_at(self.start_of_log)
        stored = {
            offset: batch
            for batch in self.stored.batches
            for offset in range(batch.first, batch.last + 1)
        }
        for offset, record in enumerate(self.records):
            found = stored.get(offset)
            final = offset < self.stored.start_offset or (found and found.state.is_final)
            is_gone = offset < self.start_of_log
            assert final or is_gone or not record.answered, "an answer holds whoever leads"
            record.writing = False
            record.deliveries = found.delivery_count if found else 0
            record.state = RecordState.ACKNOWLEDGED if final else RecordState.AVAILABLE

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_window_has_no_gaps(self) -> None:
        window = self.share.window
        at = window.start
        for one in window:
            assert one.first == at
            assert one.last >= one.first
            at = one.last + 1
        assert at == window.end

    @invariant()
    def final_records_are_counted(self) -> None:
        window = self.share.window
        final = sum(one.records for one in window if one.condition.coming.is_final)
        assert window.final_records(window.start) == final

    @invariant()
    def neighbours_differ(self) -> None:
        conditions = [one.condition for one in self.share.window]
        for one, other in pairwise(conditions):
            assert one != other or one.becoming is not None

    @invariant()
    def what_is_available_is_found(self) -> None:
        available = [one.first for one in self.share.window if one.condition.is_available]
        assert self.share.window.first_available() == next(iter(available), None)

    @invariant()
    def both_say_the_same(self) -> None:
        for one in self.share.window:
            for offset in range(one.first, one.last + 1):
                record = self.records[offset]
                if one.condition.state is RecordState.ACQUIRED:
                    assert record.state is RecordState.ACQUIRED
                    assert (record.member, record.deliveries) == (
                        one.condition.member_id,
                        one.condition.delivery_count,
                    )
                    assert record.until_ms == one.condition.locked_until_ms
                    assert record.writing is (one.condition.becoming is not None)
                elif one.condition.is_available:
                    assert record.state is RecordState.AVAILABLE
                    assert record.deliveries == one.condition.delivery_count
        for offset in range(min(self.share.window.start, len(self.records))):
            record = self.records[offset]
            batch = next(b for b in self.log if b.last >= offset)
            is_done = record.state.is_final or batch.is_hidden or offset < self.start_of_log
            assert is_done, f"record {offset} was passed over"

    @invariant()
    def the_stored_state_is_in_order(self) -> None:
        before = self.stored.start_offset - 1
        for batch in self.stored.batches:
            assert before < batch.first <= batch.last
            before = batch.last


TestSharePartitionAtRandom = SharePartitionAtRandom.TestCase
TestSharePartitionAtRandom.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)


class WithDeadLetters(SharePartitionAtRandom):
    """The same in a group with a dead letter topic (KIP-1191)."""

    limits = LIMITS._replace(has_dead_letters=True)


TestWithDeadLetters = WithDeadLetters.TestCase
TestWithDeadLetters.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_the_share_coordinators_state_can_come_in_any_order() -> None:
    first = StateBatch(0, 9, RecordState.AVAILABLE, 1)
    second = StateBatch(5, 14, RecordState.ACKNOWLEDGED, 1)
    third = StateBatch(0, 14, RecordState.AVAILABLE, 1)
    states = []
    for order in ([first, second, third], [third, second, first], [second, first, third]):
        state = StoredShareState(0)
        for batch in order:
            state.take(StateWrite(0, 0, -1, 0, [batch]))
        states.append(state.batches)
    assert states[0] == states[1] == states[2]
    assert states[0] == [StateBatch(0, 4, RecordState.AVAILABLE, 1), second]
