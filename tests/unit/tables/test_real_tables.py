"""Iceberg and Delta tables in a folder, read back by independent readers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from quorate.pipeline.pipeline_errors import PipelineError
from quorate.spark.offset_ranges import OffsetRange
from quorate.tables.data_files import FileLayout, WrittenRows
from quorate.tables.delta_table import DeltaLakeTable, open_delta
from quorate.tables.iceberg_table import IcebergTable, open_catalog, open_iceberg
from quorate.tables.lake_table import LakeTable
from quorate.tables.open_table import open_table
from quorate.tables.partitioning import parse_partitioning
from quorate.tables.table_config import TableConfig, table_config
from quorate.tables.table_errors import TableChanged, TableError
from tests.unit.pipeline.world import NAME, Killed
from tests.unit.tables.table_world import SCHEMA, ArrowTableRows, Row, TableWorld

FORMATS = ("iceberg", "delta")


def config_in(folder: Path, format_: str, partition_by: str = "") -> TableConfig:
    return table_config(
        format=format_,
        location=str(folder / "t"),
        name="t",
        partitioning=parse_partitioning(partition_by),
    )


def world_in(config: TableConfig, *ends: int, at_most: int = 20) -> TableWorld:
    world = TableWorld(*ends, at_most=at_most)
    world.open_table = lambda: open_table(config, NAME, world.rows.schema)
    return world


def read(config: TableConfig) -> pa.Table:
    if config.format == "iceberg":
        return open_catalog(config).load_table(config.identifier).scan().to_arrow()
    return DeltaTable(config.location.removeprefix("file://")).to_pyarrow_table()


def rows(config: TableConfig) -> list[Row]:
    table = read(config)
    query = 'SELECT topic, partition, "offset" FROM rows ORDER BY ALL'
    return duckdb.connect().register("rows", table).execute(query).fetchall()


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    "partition_by", ["", "day(timestamp)", "hour(timestamp),bucket(4,offset)", "identity(topic)"]
)
def test_rows_are_there_once_and_pruned(format_: str, partition_by: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_, partition_by)
    world = world_in(config, 31, 24)
    world.run()
    world.log.grow(20)
    world.run()
    assert rows(config) == world.expected()
    table = read(config)
    assert table["value"].to_pylist() == [b"v%d" % one for one in table["offset"].to_pylist()]
    if format_ == "iceberg":
        scan = open_catalog(config).load_table(config.identifier).scan
        assert scan("offset = 40").to_arrow().num_rows == 2
        assert scan("timestamp >= '1970-01-02T00:00:00+00:00'").to_arrow().num_rows == 27 + 20
    else:
        dataset = DeltaTable(config.location.removeprefix("file://")).to_pyarrow_dataset()
        assert dataset.filter(pc.field("offset") == 40).count_rows() == 2


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_killed_between_the_two_commits_is_made_good(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 31, 24)

    def die(label: str) -> None:
        if label == "commit: before" and world.cluster.asked.count("commit") == 1:
            raise Killed

    with pytest.raises(Killed):
        world.run(die)
    assert (len(rows(config)), world.cluster.offsets) == (20, (0, 0))
    world.run()
    assert rows(config) == world.expected()
    assert world.cluster.offsets == (31, 24)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("partition_by", ["", "day(timestamp)"])
def test_a_reset_removes_rows_in_files_that_stay(
    format_: str, partition_by: str, tmp_path: Path
) -> None:
    config = config_in(tmp_path, format_, partition_by)
    world = world_in(config, 31, 24)
    world.run()
    world.cluster.reset(7, 3)
    run = world.begin()
    run.prepare(0)
    assert rows(config) == [row for row in world.expected() if row[2] < (7, 3)[row[1]]]
    run.work()
    assert rows(config) == world.expected()


@pytest.mark.parametrize("format_", FORMATS)
def test_the_quorum_may_forget_and_the_table_knows(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 31, 24)
    world.run()
    world.cluster = type(world.cluster)()
    world.log.grow(3)
    world.run()
    assert rows(config) == world.expected()


@pytest.mark.parametrize("format_", FORMATS)
def test_others_may_append_and_compact_meanwhile(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 31, 24)
    world.run()
    world.log.grow(20)
    run = world.begin()
    run.prepare(0)
    other = open_table(config, "other", SCHEMA)
    if isinstance(other, IcebergTable):
        other.table.append(pa.Table.from_batches([world.rows.batch([("x", 0, 0)])]))
    else:
        assert isinstance(other, DeltaLakeTable)
        other.table.optimize.compact()
        other.table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    run.work()
    others: list[Row] = [("x", 0, 0)] if format_ == "iceberg" else []
    assert rows(config) == world.expected() + others


@pytest.mark.parametrize("format_", FORMATS)
def test_a_new_column_is_added_and_another_type_is_refused(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 10, 10)
    world.run()
    world.rows = ArrowTableRows(SCHEMA.append(pa.field("name", pa.string(), nullable=False)))
    world.log.grow(2)
    world.run()
    names = read(config).sort_by([("partition", "ascending"), ("offset", "ascending")])["name"]
    assert names.to_pylist() == ([None] * 10 + ["name-10", "name-11"]) * 2
    world.rows = ArrowTableRows(SCHEMA.set(3, pa.field("offset", pa.string())))
    with pytest.raises(TableError, match="column offset is int64 in the table and string in the r"):
        world.run()


@pytest.mark.parametrize("format_", FORMATS)
def test_files_that_no_longer_fit_are_told_and_written_anew(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_, "identity(partition)")
    world = world_in(config, 10, 10)
    run = world.begin()
    run.prepare(0)
    write = world.rows.write

    def write_and_change(ranges: Sequence[OffsetRange], layout: FileLayout) -> WrittenRows:
        written = write(ranges, layout)
        other = open_table(config, "other", SCHEMA)
        if isinstance(other, IcebergTable):
            with other.table.update_spec() as update:
                update.add_identity("topic")
            other.table.append(pa.Table.from_batches([world.rows.batch([("x", 0, 0)])]))
        else:
            DeltaTable.create(
                str(tmp_path / "t"),
                pa.schema([one for one in SCHEMA if one.name != "value"]),
                mode="overwrite",
            )
        return written

    world.rows.write = write_and_change  # type: ignore[method-assign]
    changed = {"iceberg": "changed its partitions", "delta": "changed its partitions"}[format_]
    with pytest.raises(TableChanged, match=f"another writer has {changed}"):
        run.work()
    assert not [one for one in tmp_path.rglob("lake-*.parquet")], "what was written is deleted"
    if format_ == "iceberg":
        del world.rows.write
        world.run()
        assert rows(config) == [*world.expected(), ("x", 0, 0)]


def test_a_column_that_others_drop_meanwhile_does_no_harm_to_iceberg(tmp_path: Path) -> None:
    config = config_in(tmp_path, "iceberg")
    world = world_in(config, 10, 10, at_most=5)
    run = world.begin()
    run.prepare(0)
    with open_iceberg(config, NAME, SCHEMA).table.update_schema(
        allow_incompatible_changes=True
    ) as update:
        update.delete_column("value")
    run.work()
    assert rows(config) == world.expected()
    assert "value" in read(config).column_names, "the rows have it, so the table gets it again"


def test_an_iceberg_table_that_was_rolled_back_is_filled_again(tmp_path: Path) -> None:
    config = config_in(tmp_path, "iceberg")
    world = world_in(config, 10, 10, at_most=8)
    world.run()
    table = open_catalog(config).load_table(config.identifier)
    first, *_, before_last, _ = [one.snapshot_id for one in table.history()]
    table.manage_snapshots().rollback_to_snapshot(before_last).commit()
    assert len(rows(config)) < 20
    world.run()
    assert rows(config) == world.expected()
    table = open_catalog(config).load_table(config.identifier)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(pa.Table.from_batches([world.rows.batch([("x", 0, 0)])]))
    world.run()
    assert rows(config) == [*world.expected(), ("x", 0, 0)]


def test_positions_of_an_iceberg_table_outlive_its_snapshots(tmp_path: Path) -> None:
    config = config_in(tmp_path, "iceberg")
    world = world_in(config, 10, 10, at_most=8)
    world.run()
    table = open_iceberg(config, NAME, SCHEMA)
    table.table.append(pa.Table.from_batches([world.rows.batch([("x", 0, 0)])]))
    done = open_iceberg(config, NAME, SCHEMA).expire(1 << 42)
    assert done.snapshots_expired == 3
    world.cluster = type(world.cluster)()
    world.run()
    assert rows(config) == [*world.expected(), ("x", 0, 0)]


def test_a_delta_table_that_was_restored_is_told_and_filled_again_after_a_reset(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path, "delta")
    world = world_in(config, 10, 10, at_most=8)
    world.run()
    DeltaTable(config.location.removeprefix("file://")).restore(1)
    with pytest.raises(TableError, match="somebody has restored the table to an earlier version"):
        world.run()
    world.cluster.reset(0, 0)
    world.run()
    assert rows(config) == world.expected()


@pytest.mark.parametrize("format_", FORMATS)
def test_another_table_of_the_name_is_refused(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 10, 10)
    world.run()
    if format_ == "iceberg":
        open_catalog(config).drop_table(config.identifier)
    else:
        (tmp_path / "t").rename(tmp_path / "gone")
    with pytest.raises(Exception, match=r"pipeline lake writes to .*#.*, not to .*#"):
        world.run()


def upkeep_of(table: LakeTable) -> Callable[[], None]:
    def carry_out() -> None:
        done = table.compact(1 << 20)
        assert done.files_before > done.files_after > 0

    return carry_out


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("partition_by", ["", "day(timestamp)"])
def test_small_files_are_joined_and_what_is_lost_is_deleted(
    format_: str, partition_by: str, tmp_path: Path
) -> None:
    config = config_in(tmp_path, format_, partition_by)
    world = world_in(config, 31, 24, at_most=5)
    world.run()
    (tmp_path / "t" / "data").mkdir(exist_ok=True)
    orphan = tmp_path / "t" / "data" / "orphan.parquet"
    orphan.write_bytes(b"PAR1")
    open_table_ = open_delta if format_ == "delta" else open_iceberg
    table = open_table_(config, NAME, SCHEMA)
    upkeep_of(table)()
    assert rows(config) == world.expected()
    assert table.remove_orphans(0).orphans_deleted == 0
    assert orphan.exists()
    table.expire(1 << 42)
    done = table.remove_orphans(1 << 42 if format_ == "iceberg" else 0)
    assert done.orphans_deleted >= 1 or format_ == "delta"
    assert rows(config) == world.expected()
    world.log.grow(3)
    world.run()
    assert rows(config) == world.expected()


@pytest.mark.parametrize("format_", FORMATS)
def test_a_full_or_forbidden_disk_is_told(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 10, 10)
    run = world.begin()
    run.prepare(0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr("quorate.tables.data_files.make_durable", full)
        with pytest.raises((PipelineError, OSError), match="No space left"):
            run.work()
    world.run()
    assert rows(config) == world.expected()


def test_no_statistics_are_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world_in(config_in(tmp_path, "iceberg"), 10, 10).run()
    assert "statistics" not in caplog.text
