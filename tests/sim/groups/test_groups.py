"""Seeds of the simulator of groups: a few always, hundreds in the soak."""

import os

import pytest

from quorate.common.types import TopicId, TopicIdPartition
from tests.sim.groups.group_checker import GroupChecker
from tests.sim.groups.mutants import MUTANTS
from tests.sim.groups.simulator import GROUPS
from tests.sim.mutants import Mutant
from tests.sim.world import Violation, World

SEEDS = (1, 2, 3, 25)
"""In 25 a former leader came back with records of its own, below its leader's log start."""
SOAK_SEEDS = 1_000
TIP = TopicIdPartition(TopicId(bytes(16)), 0)


class FakeMember:
    def __init__(self, name: str) -> None:
        self.member_id = name
        self.owned: dict[TopicIdPartition, int | None] = {}
        self.heard_s = 0.0


def checker_of(*members: FakeMember, is_lossy: bool = False) -> tuple[World, GroupChecker]:
    world = World(1)
    checker = GroupChecker(world, 10.0, lambda: is_lossy)
    checker.members += members  # type: ignore[arg-type]
    return world, checker


@pytest.mark.timeout(120)
def test_no_promise_to_a_group_is_broken_in_any_of_these_runs() -> None:
    commits = assignments = 0
    for outcome in GROUPS.run(SEEDS):
        assert outcome.violation is None, GROUPS.report(outcome)
        commits += outcome.commits
        assignments += outcome.assignments
    assert commits > 20 * len(SEEDS), "hardly anything was committed in these runs"
    assert assignments > 4 * len(SEEDS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_what_a_mutant_takes_out_is_still_there(mutant: Mutant) -> None:
    with mutant.applied():
        pass


def test_a_partition_with_two_owners_shows() -> None:
    one, two = FakeMember("one"), FakeMember("two")
    world, checker = checker_of(one, two)
    one.owned[TIP] = None
    world.run_until(8.9)
    with pytest.raises(Violation, match="two was given 0, which one has"):
        checker.takes(two, TIP)  # type: ignore[arg-type]
    world.run_until(10.1)
    checker.takes(two, TIP)  # type: ignore[arg-type]  # Its session may have ended.


def test_commits_that_go_back_show() -> None:
    _, checker = checker_of()
    checker.committed(TIP, 5)
    checker.fetched(TIP, 5, checker.least(TIP))
    with pytest.raises(Violation, match="is 4; 5 was acknowledged"):
        checker.fetched(TIP, 4, checker.least(TIP))
    _, lossy = checker_of(is_lossy=True)
    lossy.committed(TIP, 5)
    lossy.fetched(TIP, 4, lossy.least(TIP))


def test_a_partition_that_nobody_has_in_the_end_shows() -> None:
    one = FakeMember("one")
    _, checker = checker_of(one)
    assert checker.trouble(frozenset({TIP})) is not None
    one.owned[TIP] = None
    assert checker.trouble(frozenset({TIP})) is None


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_no_promise_to_a_group_is_broken_in_hundreds_of_runs() -> None:
    for outcome in GROUPS.run(range(1, SOAK_SEEDS + 1), jobs=os.cpu_count() or 1):
        assert outcome.violation is None, GROUPS.report(outcome)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_every_missing_guard_is_noticed(name: str) -> None:
    found = GROUPS.first_violation(name, jobs=os.cpu_count() or 1)
    assert found is not None, f"{GROUPS.within_seeds} seeds without {name}: nothing was noticed"
