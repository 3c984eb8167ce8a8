"""The leader's session table, on a clock of the test's own (rule 9)."""

import pytest

from metadata_log.types import SessionId
from quorum.sessions import CLOSED_STREAM_MS, TICK_MS, KeepAlive, SessionTable

ONE = SessionId(b"1" * 16)
TWO = SessionId(b"2" * 16)
STREAM = object()


class Clock:
    """Ticks a table forward in the steps of the real ticker."""

    def __init__(self, table: SessionTable) -> None:
        self.table = table
        self.now_ms = 0.0
        self.table.tick(0)

    def advance(self, ms: int) -> list[SessionId]:
        expired = []
        for _ in range(0, ms, TICK_MS):
            self.now_ms += TICK_MS
            expired += self.table.tick(self.now_ms)
        return expired


@pytest.fixture
def table() -> SessionTable:
    return SessionTable()


@pytest.fixture
def clock(table: SessionTable) -> Clock:
    clock = Clock(table)
    table.lead({ONE: 6_000})
    return clock


def test_rule9_silent_session_expires_once(clock: Clock) -> None:
    assert clock.advance(5_900) == []
    assert clock.advance(500) == [ONE]
    assert clock.advance(60_000) == []


def test_rule9_keep_alives_keep_a_session(table: SessionTable, clock: Clock) -> None:
    for _ in range(20):
        assert clock.advance(5_000) == []
        assert table.keep_alive(ONE, STREAM) is KeepAlive.ALIVE


def test_rule9_new_leader_gives_a_full_timeout(table: SessionTable, clock: Clock) -> None:
    clock.advance(5_000)
    table.resign()
    table.lead({ONE: 6_000})
    assert clock.advance(5_900) == []


def test_rule9_who_does_not_lead_says_nothing(table: SessionTable, clock: Clock) -> None:
    table.resign()
    assert table.keep_alive(ONE, STREAM) is KeepAlive.NO_ANSWER
    assert table.keep_alive(TWO, STREAM) is KeepAlive.NO_ANSWER
    assert clock.advance(60_000) == []


def test_rule9_no_answer_once_expiry_is_proposed(table: SessionTable, clock: Clock) -> None:
    assert clock.advance(6_200) == [ONE]
    assert table.keep_alive(ONE, STREAM) is KeepAlive.NO_ANSWER
    table.follow({})
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
    table.follow({ONE: 6_000, TWO: 6_000})
    assert clock.advance(3_200) == [ONE]
    table.follow({TWO: 6_000})
    assert clock.advance(3_000) == [TWO]


def test_refused_expiry_is_proposed_again(table: SessionTable, clock: Clock) -> None:
    assert clock.advance(6_200) == [ONE]
    table.expiry_refused(ONE)
    assert clock.advance(2 * TICK_MS) == [ONE]
