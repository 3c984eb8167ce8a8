"""Tables that keep the newest row of each key, killed anywhere and read by independent readers."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from quorate.tables.data_files import FileLayout
from quorate.tables.earlier_rows import EarlierRows, PresentFile, Replaced, Rewritten
from quorate.tables.open_table import open_table
from quorate.tables.table_errors import TableError
from quorate.tables.table_position import TablePosition, position_from_json
from quorate.tables.write_mode import WriteMode
from tests.unit.pipeline.world import NAME, KilledAt, PausedAt
from tests.unit.tables.table_world import SCHEMA, ArrowTableRows, TableWorld
from tests.unit.tables.test_real_tables import FORMATS, config_in, read, rows

KEYED = SCHEMA.insert(0, pa.field("key", pa.binary()))


def upserts(*ends: int, at_most: int = 20) -> TableWorld:
    return TableWorld(*ends, at_most=at_most, mode=WriteMode.UPSERT)


def real(folder: Path, format_: str, *ends: int, partition_by: str = "") -> TableWorld:
    config = config_in(folder, format_, partition_by)
    world = upserts(*ends)
    world.rows = ArrowTableRows(KEYED, mode=WriteMode.UPSERT)
    world.open_table = lambda: open_table(config, NAME, world.rows.schema)
    return world


def ticks_of_a_run() -> int:
    counted = KilledAt(1 << 30)
    upserts(31, 24).run(counted)
    return counted.ticks


def test_a_run_that_is_killed_anywhere_leaves_the_newest_rows_in_the_end() -> None:
    for at in range(ticks_of_a_run()):
        world = upserts(31, 24)
        world.attempt(KilledAt(at))
        world.log.grow(5)
        world.run()
        world.check()


def test_a_run_that_sleeps_while_another_is_killed_brings_nothing_older_back() -> None:
    ticks = ticks_of_a_run()
    for at, killed in itertools.product(range(0, ticks, 2), range(0, ticks, 3)):
        world = upserts(31, 24)

        def other(world: TableWorld = world, killed: int = killed) -> None:
            world.log.grow(9)
            world.attempt(KilledAt(killed))

        world.attempt(PausedAt(at, other))
        world.run()
        world.check()


def test_a_reset_ends_at_the_same_rows_wherever_it_is_killed() -> None:
    for at in range(40):
        world = upserts(31, 24)
        world.run()
        world.cluster.reset(7, 3)
        world.attempt(KilledAt(at))
        world.run()
        world.check()


def test_a_table_that_was_set_back_gets_the_newest_rows_again() -> None:
    world = upserts(10, 10, at_most=10)
    world.run()
    before, position = list(world.stored.rows), world.stored.position
    world.log.grow(15)
    world.run()
    world.stored.rows, world.stored.position = before, position
    world.stored.version += 1
    world.run()
    world.check()


def test_another_mode_needs_a_reset_which_empties_the_table() -> None:
    world = TableWorld(31, 24)
    world.run()
    world.mode = WriteMode.UPSERT
    with pytest.raises(TableError, match=r"written with table\.write\.mode=append.*backfill"):
        world.run()
    world.cluster.reset(0, 0)
    world.run()
    world.check()
    world.mode = WriteMode.APPEND
    with pytest.raises(TableError, match=r"written with table\.write\.mode=upsert"):
        world.run()


def test_releases_that_only_append_do_not_know_the_position_of_upserts() -> None:
    upsert = TablePosition().moved(1, {}, WriteMode.UPSERT).to_json()
    assert upsert["version"] == 2
    assert position_from_json(upsert).mode is WriteMode.UPSERT
    append = TablePosition().moved(1, {}, WriteMode.APPEND).to_json()
    assert append["version"] == 1
    with pytest.raises(ValueError, match="its version is 3, and this Quorate knows 1, 2"):
        position_from_json({**upsert, "version": 3})


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("partition_by", ["", "day(timestamp)", "identity(topic),bucket(3,key)"])
def test_each_key_has_its_newest_row_in_real_tables(
    format_: str, partition_by: str, tmp_path: Path
) -> None:
    world = real(tmp_path, format_, 31, 24, partition_by=partition_by)
    config = config_in(tmp_path, format_, partition_by)
    for grown in (0, 3, 20):
        world.log.grow(grown)
        world.run()
        assert rows(config) == world.expected()
        table = read(config)
        assert table["value"].to_pylist() == [b"v%d" % one for one in table["offset"].to_pylist()]
    table = open_table(config, NAME, world.rows.schema)
    assert table.position({}).mode is WriteMode.UPSERT
    table.compact(1 << 30)
    world.log.grow(4)
    world.run()
    assert rows(config) == world.expected()


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_killed_between_the_two_commits_of_an_upsert_is_made_good(
    format_: str, tmp_path: Path
) -> None:
    world = real(tmp_path, format_, 31, 24)
    for at in (3, 6, 9, 12):
        world.attempt(KilledAt(at))
        world.log.grow(2)
    world.run()
    assert rows(config_in(tmp_path, format_)) == world.expected()


@pytest.mark.parametrize("format_", FORMATS)
def test_rows_are_written_anew_for_the_state_that_another_writer_has_made(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the search for earlier rows and the commit, the files are joined by another."""
    config = config_in(tmp_path, format_)
    world = real(tmp_path, format_, 31, 24)
    world.run()
    world.log.grow(6)
    written: list[Rewritten] = []
    search = EarlierRows.without

    def slow(
        self: EarlierRows, files: Sequence[PresentFile], replaced: Replaced, layout: FileLayout
    ) -> Rewritten:
        found = search(self, files, replaced, layout)
        if not written:
            assert open_table(config, "another", KEYED).compact(1 << 30).files_before > 1
        written.append(found)
        return found

    monkeypatch.setattr(EarlierRows, "without", slow)
    monkeypatch.setattr("quorate.tables.table_commits.PAUSE_S_MAX", 0.0)
    world.run()
    assert rows(config) == world.expected()
    there = [
        [Path(file.location.removeprefix("file://")).exists() for file in attempt.written]
        for attempt in written[:2]
    ]
    assert there == [[False], [True]], "the files of the first attempt are deleted"
