"""The ledger: what counts as a test with server processes or as a mutant, and what is missing."""

import asyncio
import os
import subprocess
import sys

import pytest

from tests.ledger.__main__ import DEMANDS, summary
from tests.ledger.code_mutants import CodeMutant, NoSuchGuard, without_guard
from tests.ledger.mutants import MUTANTS
from tests.ledger.rows import has_real_test, problem_of_test, problems
from tests.ledger.server_fixtures import NoSuchTest, is_slow, starts_servers
from tests.support.demands import Demand, load_demands

IN_PROCESS = (
    "tests/integration/test_replication.py::test_c15_a_deposed_leader_cannot_commit_and_steps_down"
)
OWN_FIXTURE = "tests/integration/test_cluster_storage.py::test_d4_every_voter_holds_the_same_log"
PLUGINS_FIXTURE = "tests/integration/test_controller.py::test_c9_every_broker_knows_the_controller"
SLOW = (
    "tests/integration/test_partition_counts.py::"
    "test_c14_removed_and_added_again_while_a_replica_is_down_nothing_old_is_shown"
)
UNIT = "tests/unit/test_ledger.py::test_nothing_is_missing_that_is_not_a_gap"
GUARD = MUTANTS["isr-version"]


def test_nothing_is_missing_that_is_not_a_gap() -> None:
    assert list(problems(load_demands(DEMANDS), MUTANTS)) == []


@pytest.mark.timeout(300)
def test_every_missing_guard_is_noticed() -> None:
    """In a process of its own: the guards of this one stay."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.ledger"],
        cwd=DEMANDS.parents[1],
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    demands = load_demands(DEMANDS)
    assert ran.stdout.splitlines()[-1] == summary(demands, dict.fromkeys(MUTANTS, ""))


# -- tests with server processes -------------------------------------------------------------------


@pytest.mark.parametrize("test_id", [OWN_FIXTURE, PLUGINS_FIXTURE, SLOW])
def test_a_test_whose_fixtures_start_servers_has_server_processes(test_id: str) -> None:
    assert starts_servers(test_id)


def test_a_test_of_replicas_in_one_process_has_none_wherever_it_lies() -> None:
    assert not starts_servers(IN_PROCESS)
    assert not starts_servers(UNIT)
    assert problem_of_test(IN_PROCESS) == f"{IN_PROCESS} starts no server processes"


def test_a_slow_test_does_not_count() -> None:
    assert is_slow(SLOW)
    assert "not a part of `make test`" in problem_of_test(SLOW)
    assert not is_slow(OWN_FIXTURE)


@pytest.mark.parametrize(
    "test_id", ["tests/integration/test_none.py::test_x", f"{OWN_FIXTURE}_or_so"]
)
def test_a_test_that_is_not_there_is_named(test_id: str) -> None:
    with pytest.raises(NoSuchTest, match=test_id):
        starts_servers(test_id)
    assert problem_of_test(test_id).startswith(test_id)


# -- rows ------------------------------------------------------------------------------------------


def row(**fields: object) -> Demand:
    whole = {"real": (OWN_FIXTURE,), "mutant": GUARD.name, **fields}
    return Demand("C1", "It is so.", due=True, **whole)


@pytest.mark.parametrize(
    ("demand", "problem"),
    [
        (row(), ""),
        (row(real=(), gaps=("real",)), ""),
        (row(real=()), "C1: it has no 'real'"),
        (row(gaps=("real",)), "C1: its gap 'real' is closed: take it off the list"),
        (row(gaps=("other",)), "C1: there is no gap 'other'"),
        (row(real=(IN_PROCESS,)), f"C1: {IN_PROCESS} starts no server processes"),
    ],
)
def test_a_row_is_whole_or_lists_what_it_lacks(demand: Demand, problem: str) -> None:
    found = list(problems({"C1": demand}, {GUARD.name: GUARD}))
    assert found == ([problem] if problem else [])


def test_a_mutant_is_known_and_some_demand_names_it() -> None:
    assert list(problems({"C1": row(mutant="none")}, {GUARD.name: GUARD})) == [
        "C1: there is no mutant none",
        "mutant isr-version: no demand names it",
    ]
    nowhere = GUARD._replace(caught_by="tests/unit/test_none.py::test_x")
    (problem,) = problems({"C1": row()}, {GUARD.name: nowhere})
    assert problem == "mutant isr-version: tests/unit/test_none.py::test_x: no such file"


def test_the_last_line_counts_what_is_there() -> None:
    demands = {"C1": row(), "C2": row(real=(IN_PROCESS,), mutant="other")}
    outcomes = {GUARD.name: "", "other": "passes without the guard"}
    assert has_real_test(demands["C1"])
    assert summary(demands, outcomes) == (
        "2 demands: 1 with a real-process test, 1 with a mutant that was caught"
    )
    assert summary(demands, outcomes, "is named").endswith("1 with a mutant that is named")


# -- mutants ---------------------------------------------------------------------------------------


class Guarded:
    def __init__(self, limit: int) -> None:
        self._limit = limit

    def admits(self, value: int) -> bool:
        return value < self._limit

    @property
    def is_open(self) -> bool:
        return self._limit > 0

    @staticmethod
    async def answer() -> str:
        return "guarded"


def mutant(function: str, old: str, new: str) -> CodeMutant:
    return CodeMutant("m", f"{__name__}:{function}", old, new, UNIT)


def test_a_function_that_was_imported_already_loses_its_guard_for_a_while() -> None:
    bound = Guarded(1).admits
    with without_guard(mutant("Guarded.admits", "value < self._limit", "True")):
        assert bound(5)
    assert not bound(5)


def test_properties_and_coroutines_have_guards_too() -> None:
    with without_guard(mutant("Guarded.is_open", "self._limit > 0", "True")):
        assert Guarded(0).is_open
    assert not Guarded(0).is_open
    with without_guard(mutant("Guarded.answer", '"guarded"', '"open"')):
        assert asyncio.run(Guarded.answer()) == "open"


@pytest.mark.parametrize(
    ("function", "old"),
    [
        ("Guarded.admits", "value > self._limit"),
        ("Guarded.admits", "l"),
        ("Guarded.refuses", "value"),
        ("GUARD", "value"),
    ],
)
def test_a_guard_that_was_changed_is_said_to_be(function: str, old: str) -> None:
    with pytest.raises(NoSuchGuard), without_guard(mutant(function, old, "True")):
        pass


@pytest.mark.parametrize("name", MUTANTS)
def test_every_guard_is_where_its_mutant_takes_it_out(name: str) -> None:
    with without_guard(MUTANTS[name]):
        pass
