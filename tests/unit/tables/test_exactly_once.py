"""A run into a table may be killed, or taken over, at every effect: each offset is there once."""

import itertools

import pytest

from quorate.pipeline.pipeline_errors import PipelineError
from quorate.tables.table_errors import PositionMoved
from tests.unit.pipeline.world import NAME, Killed, KilledAt, KilledWhen, PausedAt
from tests.unit.tables.table_world import TableWorld


def ticks_of_a_run() -> int:
    counted = KilledAt(1 << 30)
    TableWorld(31, 24).run(counted)
    return counted.ticks


def test_a_run_that_is_killed_anywhere_is_made_good_by_the_next() -> None:
    for at in range(ticks_of_a_run()):
        world = TableWorld(31, 24)
        world.attempt(KilledAt(at))
        world.log.grow(5)
        world.run()
        world.check()


def test_two_runs_in_a_row_may_be_killed_anywhere() -> None:
    ticks = ticks_of_a_run()
    for first, second in itertools.product(range(0, ticks, 2), range(1, ticks, 3)):
        world = TableWorld(31, 24)
        world.attempt(KilledAt(first))
        world.attempt(KilledAt(second))
        world.run()
        world.check()


def test_a_run_that_sleeps_anywhere_while_another_works_adds_nothing_twice() -> None:
    for at in range(ticks_of_a_run()):
        world = TableWorld(31, 24)
        sleeper = PausedAt(at, lambda world=world: world.run())  # type: ignore[misc]
        world.attempt(sleeper)
        world.run()
        world.check()


def test_a_run_that_sleeps_while_another_is_killed_adds_nothing_twice() -> None:
    ticks = ticks_of_a_run()
    for at, killed in itertools.product(range(0, ticks, 2), range(0, ticks, 3)):
        world = TableWorld(31, 24)
        world.attempt(
            PausedAt(at, lambda world=world, killed=killed: world.attempt(KilledAt(killed)))  # type: ignore[misc]
        )
        world.run()
        world.check()


def test_between_the_two_commits_the_table_knows_more() -> None:
    world = TableWorld(10, 10)
    with pytest.raises(Killed):
        world.run(KilledWhen("table commit: after"))
    assert (len(world.stored.rows), world.cluster.offsets) == (20, (0, 0))
    again = world.run()
    assert again.summary.rows == 0
    world.check()


def test_a_commit_whose_answer_is_lost_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.tables.table_commits.PAUSE_S_MAX", 0.0)
    world = TableWorld(10, 10)
    world.run(lost_answers=1)
    world.check()


def test_a_quorum_that_has_forgotten_the_pipeline_learns_it_from_the_table() -> None:
    world = TableWorld(10, 10)
    world.run()
    world.cluster = type(world.cluster)()
    world.log.grow(5)
    world.run()
    world.check()


def test_a_table_that_was_set_back_is_filled_again() -> None:
    world = TableWorld(10, 10, at_most=10)
    world.run()
    rows, position = list(world.stored.rows), world.stored.position
    world.log.grow(5)
    world.run()
    world.stored.rows, world.stored.position = rows, position
    world.stored.version += 1
    world.run()
    world.check()


def test_a_reset_removes_rows_and_reads_them_again_wherever_it_is_killed() -> None:
    for at in range(40):
        world = TableWorld(31, 24)
        world.run()
        world.cluster.reset(7, 3)
        world.attempt(KilledAt(at))
        world.run()
        world.check()


def test_a_reset_to_later_offsets_leaves_a_gap_that_stays() -> None:
    world = TableWorld(10, 10)
    world.attempt(KilledWhen("data files: before"))
    world.cluster.reset(4, 0)
    world.attempt(KilledWhen("data files: before"))
    world.run()
    assert sorted(world.stored.rows) == [row for row in world.expected() if row[1:] >= (0, 4)]


def test_a_sleeper_does_not_undo_a_reset() -> None:
    for at in range(ticks_of_a_run()):
        world = TableWorld(31, 24)

        def reset_and_run(world: TableWorld = world) -> None:
            if NAME in world.cluster.metadata.image.pipelines:
                world.cluster.reset(2, 2)
            world.run()

        world.attempt(PausedAt(at, reset_and_run))
        world.run()
        rows = sorted(world.stored.rows)
        assert len(rows) == len(set(rows))
        assert set(world.expected()) >= set(rows) >= {r for r in world.expected() if r[2] >= 2}


def test_a_run_that_was_taken_over_says_so() -> None:
    world = TableWorld(10, 10)
    first = world.begin()
    first.prepare(0)
    world.run()
    with pytest.raises(PipelineError, match="no longer in charge"):
        first.work()
    assert issubclass(PositionMoved, PipelineError)
    world.check()
