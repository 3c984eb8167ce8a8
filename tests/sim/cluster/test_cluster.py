"""Seeds of the cluster's simulator: a few always, thousands in the soak."""

import os

import pytest

from tests.sim.cluster.mutants import MUTANTS
from tests.sim.cluster.simulator import CLUSTER
from tests.sim.mutants import Mutant

SEEDS = 6
SOAK_SEEDS = 5_000


@pytest.mark.timeout(180)
def test_no_promise_is_broken_in_any_of_these_runs() -> None:
    """One seed also gives one trace, in whatever process, after whatever other."""
    acknowledged = events = 0
    digests = {}
    for outcome in CLUSTER.run(range(1, SEEDS + 1)):
        assert outcome.violation is None, CLUSTER.report(outcome)
        acknowledged += outcome.acknowledged
        events += outcome.events
        digests[outcome.seed] = outcome.trace_digest
    assert acknowledged > 20 * SEEDS, "hardly anything was written in these runs"
    assert events > 2_000 * SEEDS
    again = {outcome.seed: outcome.trace_digest for outcome in CLUSTER.run([5])}
    assert again == {seed: digests[seed] for seed in again}


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_what_a_mutant_takes_out_is_still_there(mutant: Mutant) -> None:
    """A function that was renamed would make it take out nothing."""
    with mutant.applied():
        pass


@pytest.mark.slow
def test_no_promise_is_broken_in_thousands_of_runs() -> None:
    for outcome in CLUSTER.run(range(1, SOAK_SEEDS + 1), jobs=os.cpu_count() or 1):
        assert outcome.violation is None, CLUSTER.report(outcome)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_every_missing_guard_is_noticed(name: str) -> None:
    found = CLUSTER.first_violation(name, jobs=os.cpu_count() or 1)
    assert found is not None, (
        f"{CLUSTER.within_seeds} seeds without {name}, and nothing was noticed"
    )
