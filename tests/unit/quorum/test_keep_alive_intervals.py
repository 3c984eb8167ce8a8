"""Keep-alives where the leader has many sessions: the interval it names, and whom it then takes for
silent (rule 9)."""

import pytest

from quorate.common.types import SessionId
from quorate.quorum.keep_alive_intervals import interval_to_keep_ms, own_interval_ms
from quorate.quorum.voter.sessions import (
    HANDOVER_MARGIN_MS,
    KEEP_ALIVES_PER_S,
    NOTE_EVERY_MS,
    TICK_MS,
    SessionTable,
)
from tests.unit.quorum.test_sessions import ONE, STREAM, Clock

TIMEOUT_MS = 6_000
LONGEST_MS = 2_000


def crowded(clock: Clock, sessions: int = 2 * KEEP_ALIVES_PER_S) -> None:
    """The table has so many sessions, and their silence is not what the test looks at."""
    others = {SessionId(b"%016d" % number): 3_600_000 for number in range(1, sessions)}
    clock.timeouts_ms |= others
    clock.table.follow(clock.timeouts_ms, clock.silences)


@pytest.fixture
def clock() -> Clock:
    clock = Clock(SessionTable())
    clock.table.lead({ONE: TIMEOUT_MS}, {})
    return clock


def named_ms(clock: Clock) -> int:
    """The interval that comes with the answer to a keep-alive."""
    clock.table.keep_alive(ONE, STREAM)
    return clock.table.interval_ms(ONE)


@pytest.mark.parametrize(
    ("sessions", "interval_ms"),
    [(1, 0), (500, 0), (750, 1_500), (1_000, LONGEST_MS), (5_000, LONGEST_MS)],
)
def test_many_sessions_are_told_a_longer_interval_and_never_more_than_a_third_of_the_timeout(
    clock: Clock, sessions: int, interval_ms: int
) -> None:
    crowded(clock, sessions)
    assert named_ms(clock) == interval_ms


def test_who_is_not_known_is_told_no_interval(clock: Clock) -> None:
    assert clock.table.interval_ms(SessionId(b"?" * 16)) == 0


@pytest.mark.parametrize("timeout_ms", [200, 2_000, 6_000, 60_000])
@pytest.mark.parametrize("named", [0, 1, 900, 2_000, 1 << 30])
def test_a_client_keeps_its_own_interval_at_least_and_a_third_of_its_timeout_at_most(
    timeout_ms: int, named: int
) -> None:
    interval_ms = interval_to_keep_ms(timeout_ms, named)
    assert own_interval_ms(timeout_ms) <= interval_ms <= timeout_ms / 3
    if own_interval_ms(timeout_ms) <= named <= timeout_ms / 3:
        assert interval_ms == named


def test_rule9_nothing_is_noted_of_healthy_sessions_at_the_longer_interval(clock: Clock) -> None:
    crowded(clock)
    for _ in range(30):
        assert named_ms(clock) == LONGEST_MS
        assert clock.advance(LONGEST_MS + 500) == []
    assert clock.notes == []


def test_rule9_a_session_at_the_longer_interval_expires_and_is_noted_when_it_is_silent(
    clock: Clock,
) -> None:
    crowded(clock)
    named_ms(clock)
    assert clock.advance(TIMEOUT_MS - TICK_MS) == []
    assert clock.notes == [{ONE: 2}, {ONE: 3}]
    assert clock.advance(4 * TICK_MS) == [ONE]


def test_rule9_every_quarter_is_noted_of_a_session_that_is_not_due_for_longer(clock: Clock) -> None:
    """Its first quarter is 15 s, its interval 2 s."""
    crowded(clock)
    clock.timeouts_ms[ONE] = 60_000
    clock.change_leader()
    assert named_ms(clock) == LONGEST_MS
    clock.advance(15_000 + NOTE_EVERY_MS)
    assert clock.notes == [{ONE: 1}]


def test_rule9_every_quarter_is_noted_of_who_never_came_to_this_leader(clock: Clock) -> None:
    """Else leaders that follow each other every two seconds would keep a dead session for ever."""
    crowded(clock)
    named_ms(clock)
    clock.change_leader()
    clock.advance(1_500 + NOTE_EVERY_MS)
    assert clock.silences == {ONE: 1}


def test_rule9_who_was_silent_keeps_the_short_interval_until_the_log_says_otherwise(
    clock: Clock,
) -> None:
    """A leader that follows meanwhile gives it less than its timeout to be found."""
    crowded(clock)
    named_ms(clock)
    clock.advance(4_500 + NOTE_EVERY_MS)
    assert clock.silences == {ONE: 3}
    assert named_ms(clock) == 0, "it was silent just now"
    assert named_ms(clock) == 0, "the log says that it is silent"
    clock.change_leader()
    assert clock.advance(1_500 + HANDOVER_MARGIN_MS - TICK_MS) == []
    assert named_ms(clock) == 0
    clock.advance(2 * NOTE_EVERY_MS)
    assert clock.silences == {ONE: 0}
    assert named_ms(clock) == LONGEST_MS


def test_rule9_who_was_silent_keeps_the_short_interval_while_the_note_is_on_its_way(
    clock: Clock,
) -> None:
    crowded(clock)
    named_ms(clock)
    while not clock.table.silences_to_note():
        clock.now_ms += TICK_MS
        clock.table.tick(clock.now_ms)
    assert named_ms(clock) == 0


def test_rule9_new_leader_gives_sessions_at_the_longer_interval_time_to_find_it(
    clock: Clock,
) -> None:
    """A client that has just been answered asks again after its interval, and only then looks for
    the leader."""
    crowded(clock)
    for _ in range(5):
        assert named_ms(clock) == LONGEST_MS
        clock.advance(LONGEST_MS)
    clock.change_leader()
    assert clock.advance(TIMEOUT_MS - TICK_MS) == []
    assert clock.advance(4 * TICK_MS) == [ONE]
