"""When a broker has lost sight of the quorum, and so believes what others know of it (rule 6)."""

import pytest

from quorate.broker.environment import has_lost_sight_of_the_quorum


@pytest.mark.parametrize(
    ("silent_ms", "interval_ms", "lost"),
    [
        (2_000, 1_000, False),
        (2_001, 1_000, True),
        (2_001, 100, True),
        (2_900, 2_000, False),  # The next keep-alive was due a moment ago.
        (3_001, 2_000, True),
    ],
)
def test_rule_6_sight_of_the_quorum_is_lost_when_a_keep_alive_stays_unanswered(
    silent_ms: int, interval_ms: int, lost: bool
) -> None:
    assert has_lost_sight_of_the_quorum(silent_ms, interval_ms) is lost
