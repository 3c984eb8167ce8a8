"""Each offset is in the sink exactly once: runs killed at every point, and runs that turn up late.

The metadata log, the controller's decisions and the run are the product's; time, the cluster's
logs and Spark are stood in for. A point is every effect, before and after, and the middle of those
that are not atomic.
"""

import random

import pytest

from quorate.client.errors import RequestFailed
from quorate.pipeline.pipeline_errors import PipelineError, RunFenced, SinkError
from quorate_proto.v1 import errors_pb2
from tests.unit.pipeline.world import Killed, KilledAt, KilledWhen, PausedAt, World

ENDS = (23, 9, 0)


def ticks_of_a_run() -> KilledAt:
    """A run that nobody kills, counted."""
    world, tick = World(*ENDS), KilledAt(1 << 30)
    world.run(tick)
    world.check()
    return tick


@pytest.fixture(scope="module")
def labels() -> list[str]:
    """What happens in a run, in order: the points there are."""
    return ticks_of_a_run().labels


def test_a_run_reads_everything_once_and_says_so() -> None:
    world = World(*ENDS)
    run = world.run()
    world.check()
    assert (run.summary.rows, run.summary.offsets, run.summary.batches) == (32, 32, 2)
    assert {str(p): moved for p, moved in run.summary.moved.items()} == {
        "t-0": (0, 23),
        "t-1": (0, 9),
    }
    assert world.progress.told == [
        ("planned", 32),
        ("begun", 20),
        ("committed", 20),
        ("begun", 12),
        ("committed", 12),
    ]
    left = [one for one in world.content if one.startswith("_quorate")]
    assert left == ["_quorate/lake/layout/columns=topic,partition,date"], "nothing else is left"
    assert world.run().summary.batches == 0
    world.log.grow(5)
    assert world.run().summary.rows == 15
    world.check()


def test_a_run_killed_anywhere_leaves_neither_gaps_nor_duplicates(labels: list[str]) -> None:
    assert len(labels) > 50
    for point in range(len(labels)):
        world = World(*ENDS)
        with pytest.raises(Killed):
            world.run(KilledAt(point))
        world.log.grow(4)
        world.run()
        world.check()


def test_runs_killed_again_and_again_leave_neither_gaps_nor_duplicates(labels: list[str]) -> None:
    chance = random.Random(1)
    for _ in range(60):
        world = World(*ENDS)
        for _ in range(chance.randrange(2, 6)):
            world.attempt(KilledAt(chance.randrange(len(labels))))
            world.log.grow(chance.randrange(3))
        world.run()
        world.check()


def test_a_run_that_slept_while_another_took_over_changes_nothing(labels: list[str]) -> None:
    """It goes on after the other has ended; all the while a reader sees each offset once, but for
    a move that the sleeper was in.
    """
    for point in range(len(labels)):
        world = World(*ENDS)
        sleeper = PausedAt(point, lambda world=world: _grow_and_run(world))  # type: ignore[misc]
        world.attempt(sleeper)
        if not sleeper.label.startswith("move"):
            assert world.seen() == world.expected(), sleeper.label
        world.run()
        world.check()


@pytest.mark.parametrize("lives_for", [1, 2, 3])
def test_a_run_that_slept_and_dies_in_the_middle_of_a_move_is_cleared_up_after(
    labels: list[str], lives_for: int
) -> None:
    for point in range(lives_for % 2, len(labels), 2):
        world = World(*ENDS)
        world.attempt(
            PausedAt(point, lambda world=world: _grow_and_run(world), lives_for=lives_for)  # type: ignore[misc]
        )
        world.run()
        world.check()


def test_a_sleeper_whose_successor_was_killed_changes_nothing(labels: list[str]) -> None:
    chance = random.Random(2)
    for point in range(0, len(labels), 2):
        world = World(*ENDS)
        killed = KilledAt(chance.randrange(len(labels)))
        world.attempt(PausedAt(point, lambda w=world, k=killed: w.attempt(k)))  # type: ignore[misc]
        world.run()
        world.check()


def test_staged_rows_of_a_run_that_was_killed_are_removed() -> None:
    world = World(*ENDS)
    with pytest.raises(Killed):
        world.run(KilledWhen("write: after"))
    assert any("/staging/" in path for path in world.content)
    world.run()
    assert not [path for path in world.content if "/staging/" in path]


def test_a_commit_that_nobody_answers_for_is_left_to_the_next_run() -> None:
    """It may have been carried out: then its files must stay."""
    for moment in ("commit: before", "commit: after"):
        world = World(*ENDS)
        commits: list[str] = []

        def lose(label: str, moment: str = moment, commits: list[str] = commits) -> None:
            commits += [label] if label == moment else []
            if len(commits) == 2:
                raise RequestFailed(errors_pb2.REQUEST_TIMED_OUT, "no answer")

        with pytest.raises(PipelineError, match="REQUEST_TIMED_OUT"):
            world.run(lose)
        assert world.seen() != {}
        world.run()
        world.check()


def test_a_run_that_fails_takes_its_files_with_it() -> None:
    world = World(*ENDS)
    moves = []

    def fail(label: str) -> None:
        moves.extend([label] if label == "move: copied" else [])
        if len(moves) == 3:
            moves.clear()
            raise SinkError("the disk is full")

    with pytest.raises(SinkError, match="the disk is full"):
        world.run(fail)
    assert world.seen() == {}
    world.run()
    world.check()


def test_a_run_that_was_taken_over_says_by_whom() -> None:
    world = World(*ENDS)
    with pytest.raises(RunFenced, match=r"run \d+ is no longer in charge .* \(run 2\)"):
        world.run(PausedAt(10, lambda: _grow_and_run(world)))


@pytest.mark.parametrize("label", ["write: a file", "move: before", "text: half"])
def test_a_run_whose_files_are_gone_says_who_has_taken_over(label: str) -> None:
    """Not that they are gone: that is how it comes to know."""
    world = World(*ENDS)
    ran: list[str] = []

    def take_over(at: str) -> None:
        if at == label and not ran:
            ran.append(at)
            _grow_and_run(world)

    with pytest.raises(RunFenced, match="no longer in charge"):
        world.run(take_over)
    world.check()


def test_where_a_topic_begins_is_put_down_before_it_is_read() -> None:
    """Else "latest" would be another offset after a run that was killed."""
    world = World(*ENDS)
    world.log.starts_at_latest = True
    with pytest.raises(Killed):
        world.run(KilledWhen("commit: after", before=lambda: world.log.grow(3)))
    assert world.cluster.offsets == ENDS
    world.run()
    assert world.seen() == world.expected(dict(enumerate(ENDS)))


def test_folders_are_named_by_the_same_columns_as_in_the_first_run() -> None:
    world = World(*ENDS)
    world.columns = ("topic", "partition", "country")
    with pytest.raises(Killed):
        world.run(KilledWhen("commit: before"))
    world.columns = ("topic", "partition", "timestamp_hour")
    world.run()
    world.columns = ("topic", "partition", "date")
    with pytest.raises(SinkError, match="lie by topic, partition, timestamp_hour: leave it as it"):
        world.run()
    world.check()


def test_folders_of_an_earlier_release_are_named_by_the_date() -> None:
    world = World(*ENDS)
    world.run()
    world.content = {path: text for path, text in world.content.items() if "/layout/" not in path}
    world.log.grow(5)
    world.columns = ("topic", "partition", "country")
    with pytest.raises(SinkError, match="lie by topic, partition, date"):
        world.run()
    world.columns = ("topic", "partition", "date")
    world.run()
    world.check()


def test_a_sink_with_files_of_a_namesake_is_refused() -> None:
    world = World(*ENDS)
    world.run()
    another = World(*ENDS)
    another.content = world.content
    with pytest.raises(SinkError, match="an earlier pipeline named lake"):
        another.run()
    assert another.content == world.content


def test_rows_of_a_topic_that_was_created_anew_meanwhile_are_dropped() -> None:
    world = World(*ENDS)

    def create_anew(label: str) -> None:
        world.log.generation += label == "write: after"

    with pytest.raises(PipelineError, match="deleted while it was read"):
        world.run(create_anew)
    assert world.seen() == {}


def _grow_and_run(world: World) -> None:
    world.log.grow(4)
    world.run()


# --- set back -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", [(0, 0, 0), (5, -1, -1), (13, 4, 0), (20, 9, -1), (23, 0, -1)])
def test_a_pipeline_set_back_writes_anew_what_lies_behind(offsets: tuple[int, ...]) -> None:
    world = World(*ENDS)
    world.run()
    world.cluster.reset(*offsets)
    world.log.grow(3)
    world.run()
    world.check()


def test_a_run_killed_while_it_clears_what_was_set_back_is_made_good() -> None:
    counted, world = KilledAt(1 << 30), World(*ENDS)
    world.run()
    world.cluster.reset(13, 4)
    world.run(counted)
    for point in range(counted.ticks):
        world = World(*ENDS)
        world.run()
        world.cluster.reset(13, 4)
        with pytest.raises(Killed):
            world.run(KilledAt(point))
        world.run()
        world.check()


def test_a_sleeper_who_wakes_after_the_pipeline_was_set_back_changes_nothing(
    labels: list[str],
) -> None:
    def set_back_and_run(world: World) -> None:
        world.run()
        world.cluster.reset(6, 2)
        world.at_most = 7
        world.run()

    for lives_for in (2, 1 << 30):
        for point in range(0, len(labels), 2):
            world = World(*ENDS)
            sleeper = PausedAt(
                point,
                lambda world=world: set_back_and_run(world),  # type: ignore[misc]
                lives_for=lives_for,
            )
            world.attempt(sleeper)
            world.run()
            world.check()


def test_a_pipeline_put_forward_leaves_out_what_lies_between() -> None:
    world = World(*ENDS)
    world.run()
    world.log.grow(10)
    world.cluster.reset(30, 12)
    world.run()
    found = world.seen()
    assert found[0] == [*range(23), *range(30, 33)]
    assert found[1] == [*range(9), *range(12, 19)]


def test_what_lies_in_a_file_that_cannot_be_written_anew_stays() -> None:
    world = World(*ENDS, at_most=100)
    world.run()
    world.cluster.reset(13)
    world.log.first[0] = 5
    with pytest.raises(PipelineError, match=r"begins at 0.* the log begins at 5: reset t-0"):
        world.run()
    assert world.seen() == world.expected()
