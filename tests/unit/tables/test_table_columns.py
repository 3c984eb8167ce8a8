"""The columns of tables against those of rows that have changed."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quorate.spark.offset_ranges import OffsetRange
from quorate.tables.iceberg_table import IcebergTable
from quorate.tables.open_table import open_table
from quorate.tables.table_columns import all_nullable, grown_columns
from quorate.tables.table_errors import TableError
from tests.unit.pipeline.world import NAME
from tests.unit.tables.table_world import SCHEMA, ArrowTableRows, Row
from tests.unit.tables.test_real_tables import FORMATS, config_in, read, world_in

INNER = pa.struct([pa.field("a", pa.int32(), nullable=False)])
GROWN = pa.struct([("b", pa.string()), ("a", pa.int32())])
MERGED = pa.struct([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("present", "rows", "grown"),
    [
        (INNER, INNER, None),
        (INNER, GROWN, MERGED),
        (pa.struct([("b", pa.string())]), INNER, GROWN),
        (MERGED, INNER, None),
        (pa.list_(INNER), pa.large_list(GROWN), pa.list_(MERGED)),
        (pa.map_(pa.string(), INNER), pa.map_(pa.string(), GROWN), pa.map_(pa.string(), MERGED)),
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.large_string(), pa.string(), None),
        (pa.int32(), pa.int8(), None),
    ],
)
def test_a_column_grows_part_by_part(
    present: pa.DataType, rows: pa.DataType, grown: pa.DataType | None
) -> None:
    known = all_nullable(pa.schema([("x", present)]))
    found = grown_columns("t", known, pa.schema([("x", rows)]), widens=True)
    assert [one.type for one in found] == ([] if grown is None else [grown])


@pytest.mark.parametrize(
    ("present", "rows", "widens", "told"),
    [
        (pa.int32(), pa.int64(), False, "column x is int32 in the table and int64 in the rows"),
        (pa.int64(), pa.float64(), True, "column x is int64 in the table and double in the rows"),
        (INNER, pa.struct([("a", pa.string())]), True, "column x.a is int32 in the table and str"),
        (pa.list_(pa.int32()), pa.list_(pa.string()), True, r"column x\[\] is int32"),
        (INNER, pa.list_(pa.int32()), True, "column x is struct<a: int32> in the table and list"),
    ],
)
def test_another_type_is_refused(
    present: pa.DataType, rows: pa.DataType, widens: bool, told: str
) -> None:
    known = all_nullable(pa.schema([("x", present)]))
    with pytest.raises(TableError, match=told):
        grown_columns("t", known, pa.schema([("x", rows)]), widens=widens)


class NestedRows(ArrowTableRows):
    """Rows with a struct and a list of structs, of given fields."""

    def __init__(self, *fields: pa.Field) -> None:
        inner = pa.struct(fields)
        super().__init__(SCHEMA.append(pa.field("s", inner)).append(pa.field("l", pa.list_(inner))))

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        plain = super().batch([])
        values = [{"a": offset, "b": f"b{offset}"} for _, _, offset in rows]
        known = ArrowTableRows().batch(rows)
        columns = [known.column(one.name) for one in SCHEMA]
        columns.append(pa.array(values, plain.schema.field("s").type))
        columns.append(pa.array([[one] for one in values], plain.schema.field("l").type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@pytest.mark.parametrize("format_", FORMATS)
def test_fields_within_columns_come_and_go(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 2, at_most=100)
    world.rows = NestedRows(pa.field("a", pa.int32(), nullable=False))
    world.run()
    for fields in (
        [pa.field("b", pa.string()), pa.field("a", pa.int32())],
        [pa.field("b", pa.string())],
    ):
        world.rows = NestedRows(*fields)
        world.log.grow(1)
        world.run()
    world.rows = ArrowTableRows()
    world.log.grow(1)
    world.run()
    found = read(config).sort_by("offset").to_pylist()
    assert [row["s"] for row in found] == [
        {"a": 0, "b": None},
        {"a": 1, "b": None},
        {"a": 2, "b": "b2"},
        {"a": None, "b": "b3"},
        None,
    ]
    assert [row["l"] for row in found[:4]] == [[row["s"]] for row in found[:4]]
    # A list of pyiceberg's that is null in the file comes back empty.
    assert not found[4]["l"]


@pytest.mark.parametrize("renamed", [False, True])
def test_joined_files_have_the_same_rows(renamed: bool, tmp_path: Path) -> None:
    config = config_in(tmp_path, "iceberg")
    world = world_in(config, 1)
    world.rows = NestedRows(pa.field("a", pa.int32()), pa.field("b", pa.string()))
    world.run()
    world.rows = ArrowTableRows()
    for _ in range(4):
        world.log.grow(1)
        world.run()
    table = open_table(config, NAME, SCHEMA)
    assert isinstance(table, IcebergTable)
    if renamed:
        with table.table.update_schema() as update:
            update.rename_column("s.a", "c")
    assert table.compact(1 << 30).files_after == 1
    (task,) = table.table.scan().plan_files()
    found = pq.read_table(task.file.file_path.removeprefix("file://")).sort_by("offset").to_pylist()
    name = "c" if renamed else "a"
    assert [row["s"] for row in found] == [{name: 0, "b": "b0"}] + [None] * 4
    if not renamed:
        assert [row["l"] for row in found] == [[{"a": 0, "b": "b0"}]] + [None] * 4


class PlannedRows(ArrowTableRows):
    """Rows that get a column when a batch is planned."""

    def plan(self, ranges: Sequence[OffsetRange]) -> None:
        self.schema = SCHEMA.append(pa.field("note", pa.string()))


@pytest.mark.parametrize("format_", FORMATS)
def test_the_table_fits_the_rows_as_they_are_planned(format_: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, format_)
    world = world_in(config, 2)
    world.rows = PlannedRows()
    world.run()
    assert read(config).sort_by("offset")["note"].to_pylist() == ["note-0", "note-1"]


def test_an_iceberg_table_widens_its_columns(tmp_path: Path) -> None:
    config = config_in(tmp_path, "iceberg")
    narrow = SCHEMA.set(3, pa.field("offset", pa.int32()))
    world = world_in(config, 3)
    world.rows = ArrowTableRows(narrow)
    world.run()
    world.rows = ArrowTableRows()
    world.log.grow(1)
    world.run()
    assert sorted(read(config)["offset"].to_pylist()) == [0, 1, 2, 3]


def test_a_required_column_that_the_rows_lack_is_told(tmp_path: Path) -> None:
    config = config_in(tmp_path, "iceberg")
    world = world_in(config, 3)
    world.run()
    other = open_table(config, NAME, SCHEMA)
    assert isinstance(other, IcebergTable)
    with other.table.update_schema(allow_incompatible_changes=True) as update:
        from pyiceberg.types import StringType

        update.add_column("must", StringType(), required=True)
    world.log.grow(1)
    with pytest.raises(TableError, match="column must is required"):
        world.run()
