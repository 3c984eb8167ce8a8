"""The leader's session table, on a clock of the test's own (rule 9)."""

import pytest

from quorate.common.types import SessionId
from quorate.quorum.voter.sessions import (
    CLOSED_STREAM_MS,
    HANDOVER_MARGIN_MS,
    NOTE_EVERY_MS,
    TICK_MS,
    KeepAlive,
    SessionTable,
)

ONE = SessionId(b"1" * 16)
TWO = SessionId(b"2" * 16)
STREAM = object()


class Clock:
    """Ticks a table forward in the steps of the real ticker, and commits what it wants noted."""

    def __init__(self, table: SessionTable) -> None:
        self.table = table
        self.now_ms = 0.0
        self.table.tick(0)
        self.timeouts_ms = {ONE: 6_000}
        self.silences: dict[SessionId, int] = {}
        self.notes: list[dict[SessionId, int]] = []

    def advance(self, ms: int) -> list[SessionId]:
        expired = []
        for _ in range(0, ms, TICK_MS):
            self.now_ms += TICK_MS
            expired += self.table.tick(self.now_ms)
            note = self.table.silences_to_note()
            if note:
                self.notes.append(note)
                self.silences |= note
                self.table.follow(self.timeouts_ms, self.silences)
        return expired

    def change_leader(self) -> None:
        """Another voter leads: it knows what was committed."""
        self.table.resign()
        self.table.lead(self.timeouts_ms, self.silences)


@pytest.fixture
def table() -> SessionTable:
    return SessionTable()


@pytest.fixture
def clock(table: SessionTable) -> Clock:
    clock = Clock(table)
    table.lead({ONE: 6_000}, {})
    return clock


def test_rule9_silent_session_expires_once(clock: Clock) -> None:
    assert clock.advance(5_900) == []
    assert clock.advance(500) == [ONE]
    assert clock.advance(60_000) == []


def test_rule9_keep_alives_keep_a_session(table: SessionTable, clock: Clock) -> None:
    for _ in range(20):
        assert clock.advance(5_000) == []
        assert table.keep_alive(ONE, STREAM) is KeepAlive.ALIVE


def test_rule9_new_leader_gives_who_was_heard_a_full_timeout(
    table: SessionTable, clock: Clock
) -> None:
    for _ in range(5):
        clock.advance(1_400)
        assert table.keep_alive(ONE, STREAM) is KeepAlive.ALIVE
    clock.advance(1_400)
    clock.change_leader()
    assert clock.advance(5_900) == []
    assert clock.advance(300) == [ONE]


def test_rule9_nothing_is_noted_while_everybody_is_healthy(
    table: SessionTable, clock: Clock
) -> None:
    for _ in range(60):
        clock.advance(1_000)
        table.keep_alive(ONE, STREAM)
    assert clock.notes == []


def test_rule9_silence_is_noted_once_per_quarter(clock: Clock) -> None:
    clock.advance(6_200)
    assert clock.notes == [{ONE: 1}, {ONE: 2}, {ONE: 3}]


def test_rule9_silences_are_noted_together(table: SessionTable, clock: Clock) -> None:
    """A thousand brokers behind a cut link are one transaction, not a thousand."""
    clock.timeouts_ms |= {SessionId(b"%016d" % number): 6_000 for number in range(1_000)}
    table.follow(clock.timeouts_ms, {})
    clock.advance(1_500 + NOTE_EVERY_MS)
    assert [len(note) for note in clock.notes] == [1_001]


def test_rule9_who_is_heard_again_gets_full_timeouts_again(
    table: SessionTable, clock: Clock
) -> None:
    clock.advance(4_000)
    assert clock.silences == {ONE: 2}
    table.keep_alive(ONE, STREAM)
    clock.advance(NOTE_EVERY_MS)
    assert clock.silences == {ONE: 0}
    clock.change_leader()
    assert clock.advance(5_900) == []


def test_rule9_new_leader_gives_a_silent_session_what_was_left(clock: Clock) -> None:
    clock.advance(5_000)
    clock.change_leader()
    left_ms = 1_500 + HANDOVER_MARGIN_MS
    assert clock.advance(left_ms - TICK_MS) == []
    assert clock.advance(4 * TICK_MS) == [ONE]


@pytest.mark.parametrize("margin_ms", [HANDOVER_MARGIN_MS, 8_000])
def test_rule9_new_leader_gives_no_session_less_than_the_margin(margin_ms: int) -> None:
    """The leader before may still say for half as long that a session is alive."""
    for timeout_ms, quarters in ((200, 0), (200, 4), (6_000, 4)):
        table = SessionTable(margin_ms)
        clock = Clock(table)
        clock.timeouts_ms = {ONE: timeout_ms}
        clock.silences = {ONE: quarters}
        clock.change_leader()
        assert clock.advance(margin_ms - TICK_MS) == []


def test_a_session_that_is_opened_gets_its_timeout_however_short(table: SessionTable) -> None:
    table.lead({}, {})
    table.follow({ONE: 200}, {})
    table.tick(0)
    due = [now_ms for now_ms in range(50, 1_000, 50) if table.tick(now_ms)]
    assert due == [250]


def test_rule9_silent_session_that_finds_the_new_leader_lives_on(
    table: SessionTable, clock: Clock
) -> None:
    clock.advance(5_900)
    clock.change_leader()
    clock.advance(HANDOVER_MARGIN_MS - TICK_MS)
    assert table.keep_alive(ONE, STREAM) is KeepAlive.ALIVE
    clock.advance(NOTE_EVERY_MS)
    assert clock.silences == {ONE: 0}
    clock.change_leader()
    assert clock.advance(5_900) == []


@pytest.mark.parametrize("tenure_ms", range(1_750, 6_000, 250))
def test_rule9_leader_changes_do_not_extend_a_silent_session_for_ever(
    clock: Clock, tenure_ms: int
) -> None:
    """About twice its timeout at most, whatever the leaders' tenures are (a quarter and more)."""
    for _ in range(20):
        if clock.advance(tenure_ms):
            break
        clock.change_leader()
    assert clock.now_ms <= 2 * 6_000 + 250


def test_rule9_no_note_of_a_session_whose_expiry_is_proposed(
    table: SessionTable, clock: Clock
) -> None:
    assert clock.advance(6_200) == [ONE]
    notes = len(clock.notes)
    clock.advance(6_000)
    assert len(clock.notes) == notes


def test_rule9_who_does_not_lead_says_nothing(table: SessionTable, clock: Clock) -> None:
    table.resign()
    assert table.keep_alive(ONE, STREAM) is KeepAlive.NO_ANSWER
    assert table.keep_alive(TWO, STREAM) is KeepAlive.NO_ANSWER
    assert clock.advance(60_000) == []


def test_rule9_no_answer_once_expiry_is_proposed(table: SessionTable, clock: Clock) -> None:
    assert clock.advance(6_200) == [ONE]
    assert table.keep_alive(ONE, STREAM) is KeepAlive.NO_ANSWER
    table.follow({}, {})
    assert table.keep_alive(ONE, STREAM) is KeepAlive.GONE


def test_rule9_waiting_keep_alives_are_read_before_anyone_expires(
    table: SessionTable, clock: Clock
) -> None:
    assert clock.advance(6_000) == []
    assert table.keep_alive(ONE, STREAM) is KeepAlive.ALIVE
    assert clock.advance(5_900) == []


def test_rule9_time_in_which_the_leader_stood_still_does_not_count(
    table: SessionTable, clock: Clock
) -> None:
    clock.now_ms += 30_000
    assert table.tick(clock.now_ms) == []
    assert clock.advance(3_000) == []
    assert table.keep_alive(ONE, STREAM) is KeepAlive.ALIVE


def test_closed_stream_leaves_a_second(table: SessionTable, clock: Clock) -> None:
    table.keep_alive(ONE, STREAM)
    table.stream_closed(ONE, STREAM)
    assert clock.advance(CLOSED_STREAM_MS - TICK_MS) == []
    assert clock.advance(4 * TICK_MS) == [ONE]


def test_closed_stream_of_a_session_that_moved_on_is_of_no_account(
    table: SessionTable, clock: Clock
) -> None:
    table.keep_alive(ONE, STREAM)
    table.keep_alive(ONE, object())
    table.stream_closed(ONE, STREAM)
    assert clock.advance(5_900) == []


def test_reopened_stream_restores_the_timeout(table: SessionTable, clock: Clock) -> None:
    table.keep_alive(ONE, STREAM)
    table.stream_closed(ONE, STREAM)
    clock.advance(500)
    table.keep_alive(ONE, object())
    assert clock.advance(5_900) == []


def test_committed_sessions_come_and_go(table: SessionTable, clock: Clock) -> None:
    clock.advance(3_000)
    clock.timeouts_ms[TWO] = 6_000
    table.follow(clock.timeouts_ms, clock.silences)
    assert clock.advance(3_200) == [ONE]
    del clock.timeouts_ms[ONE]
    table.follow(clock.timeouts_ms, clock.silences)
    assert clock.advance(3_000) == [TWO]


def test_refused_expiry_is_proposed_again(table: SessionTable, clock: Clock) -> None:
    assert clock.advance(6_200) == [ONE]
    table.expiry_refused(ONE)
    assert clock.advance(2 * TICK_MS) == [ONE]
