"""The simulator notices what it is there for: without a guard it finds a violation, soon."""

import pytest

from tests.sim.batch import first_violation
from tests.sim.mutant_table import MUTANTS
from tests.sim.mutants import WITHIN_SEEDS


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_every_missing_guard_is_noticed(name: str) -> None:
    found = first_violation(name, range(1, WITHIN_SEEDS + 1))
    assert found is not None, f"{WITHIN_SEEDS} seeds without {name}, and nothing was noticed"


def test_every_guard_is_where_its_mutant_takes_it_out() -> None:
    """Else what is renamed is found out only where all of them run."""
    for mutant in MUTANTS:
        with mutant.applied():
            pass


@pytest.mark.parametrize("name", ["p1-suffix", "p18-vote", "snapshot-fsync"])
def test_what_is_noticed_first_is_noticed_at_once(name: str) -> None:
    """The checkers are awake, also in a short run of the suite."""
    assert first_violation(name, range(1, 61)) is not None
