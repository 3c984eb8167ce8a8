"""The simulator notices what it is there for: without a guard it finds a violation, soon."""

import pytest

from tests.sim.simulator import QUORUM


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", [mutant.name for mutant in QUORUM.mutants])
def test_every_missing_guard_is_noticed(name: str) -> None:
    found = QUORUM.first_violation(name)
    assert found is not None, f"{QUORUM.within_seeds} seeds without {name}, and nothing was noticed"


def test_every_guard_is_where_its_mutant_takes_it_out() -> None:
    """Else what is renamed is found out only where all of them run."""
    for mutant in QUORUM.mutants:
        with mutant.applied():
            pass


@pytest.mark.parametrize("name", ["p1-suffix", "p18-vote", "snapshot-fsync"])
def test_what_is_noticed_first_is_noticed_at_once(name: str) -> None:
    """The checkers are awake, also in a short run of the suite."""
    assert QUORUM.first_violation(name, range(1, 61)) is not None
