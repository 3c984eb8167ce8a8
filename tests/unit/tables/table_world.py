"""A cluster, a table and runs of a pipeline, where every effect is a point to be killed at.

The quorum is the controller's own code on a log in memory. The table is in memory as well, or a
real one in a folder: `MemoryTable` has the same promises, an atomic commit and a conflict for
whoever is late.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.pipeline.pipeline_registry import ActiveRun
from quorate.spark.offset_ranges import DescribedTopic, OffsetRange
from quorate.tables.data_files import FileLayout, WrittenFile, WrittenRows, write_files
from quorate.tables.lake_table import LakeTable, TableCommit, TableContent, Upkeep
from quorate.tables.latest_rows import LatestRows
from quorate.tables.table_errors import CommitConflict, TableUnavailable
from quorate.tables.table_position import TablePosition
from quorate.tables.table_runner import TableRunner
from quorate.tables.write_mode import WriteMode
from tests.unit.pipeline.world import (
    LEASE_MS,
    NAME,
    NOW_MS,
    Cluster,
    Killed,
    LocalAdminClient,
    Log,
    LogPlanner,
    RememberedProgress,
    Tick,
    never,
)

SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
HOUR_US = 3_600_000_000
Row = tuple[str, int, int]


class Stored:
    """The state of a table in memory: its history, each version whole."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: list[Row] = []
        self.position = TablePosition()
        self.files: dict[str, list[Row]] = {}
        """Files by name, committed or not."""


class MemoryTable:
    """A table with the promises of Iceberg and Delta; each step is a tick.

    ``lost_answers``: commits that are carried out although the caller hears an error.
    """

    sink = "memory:t#1"

    def __init__(self, stored: Stored, tick: Tick) -> None:
        self._stored = stored
        self._tick = tick
        self._seen = -1
        self._position = TablePosition()
        self.lost_answers = 0
        self.reload()

    def reload(self) -> None:
        self._tick("table: look")
        self._seen, self._position = self._stored.version, self._stored.position

    def fit(self, schema: pa.Schema) -> None:
        """The columns are always the same."""

    def content(self) -> TableContent:
        raise NotImplementedError

    def layout(self, prefix: str) -> FileLayout:
        return FileLayout(
            folder="memory",
            schema=SCHEMA,
            partitioning=(),
            target_bytes=1,
            compression="none",
            storage={},
            prefix=prefix,
        )

    def check_layout(self, layout: FileLayout) -> None:
        """The layout is always the same."""

    def position(
        self, topics: Mapping[str, DescribedTopic], *, was_reset: bool = False
    ) -> TablePosition:
        return self._position

    def commit(self, change: TableCommit) -> None:
        self._tick("table commit: before")
        stored = self._stored
        if stored.version != self._seen:
            raise CommitConflict("another writer was faster")
        at_least = {(p.topic, p.partition): offset for p, offset in change.removed.items()}
        gone = {
            (*partition, key)
            for partition, keys in change.replaced.items()
            for key in keys.to_pylist()
        }
        kept = [
            one
            for one in stored.rows
            if one[2] < at_least.get(one[:2], 1 << 60) and (*one[:2], key_of(one[2])) not in gone
        ]
        added = [row for one in change.files for row in stored.files[one.location]]
        stored.rows, stored.position = kept + added, change.position
        stored.version += 1
        if self.lost_answers:
            self.lost_answers -= 1
            raise TableUnavailable("no answer")
        self._seen, self._position = stored.version, stored.position
        self._tick("table commit: after")

    def compact(self, small_bytes: int) -> Upkeep:
        raise NotImplementedError

    def expire(self, older_than_ms: int) -> Upkeep:
        raise NotImplementedError

    def remove_orphans(self, older_than_ms: int) -> Upkeep:
        raise NotImplementedError


def rows_of(ranges: Sequence[OffsetRange]) -> list[Row]:
    return [
        (*one.topic_partition, offset) for one in ranges for offset in range(one.start, one.end)
    ]


def key_of(offset: int) -> bytes:
    """The key of a record: eleven different ones in each partition."""
    return b"k%d" % (offset * 7 % 11)


def is_tombstone(offset: int) -> bool:
    """Whether a record has no value."""
    return offset % 5 == 3


def latest_of(rows: Sequence[Row]) -> list[Row]:
    """Return the newest row of each key that is not deleted."""
    newest = {(topic, number, key_of(offset)): offset for topic, number, offset in rows}
    return [
        (topic, number, offset)
        for (topic, number, _), offset in newest.items()
        if not is_tombstone(offset)
    ]


class MemoryTableRows:
    """Writes the offsets of ranges into files of a `Stored`."""

    schema = SCHEMA

    def __init__(self, stored: Stored, tick: Tick, mode: WriteMode) -> None:
        self._stored = stored
        self._tick = tick
        self._mode = mode

    def plan(self, ranges: Sequence[OffsetRange]) -> None:
        """The columns stay as they are."""

    def write(self, ranges: Sequence[OffsetRange], layout: FileLayout) -> WrittenRows:
        self._tick("data files: before")
        name = f"{layout.prefix}-{len(self._stored.files)}"
        rows, keys = rows_of(ranges), {}
        if self._mode is WriteMode.UPSERT:
            keys = {
                one.topic_partition: pa.array({key_of(row[2]) for row in rows_of([one])})
                for one in ranges
            }
            rows = latest_of(rows)
        self._stored.files[name] = rows
        self._tick("data files: after")
        return WrittenRows([WrittenFile(name, 1, len(rows), (), b"")], keys)

    def cancel(self) -> None:
        """There is nothing to cancel."""

    def fraction_done(self) -> float:
        return 0.0


class ArrowTableRows:
    """Writes the offsets of ranges as real Parquet files."""

    def __init__(
        self,
        schema: pa.Schema = SCHEMA,
        us_per_offset: int = HOUR_US,
        mode: WriteMode = WriteMode.APPEND,
    ) -> None:
        self.schema = schema
        self._us_per_offset = us_per_offset
        self._mode = mode

    def plan(self, ranges: Sequence[OffsetRange]) -> None:
        """The columns stay as they are."""

    def write(self, ranges: Sequence[OffsetRange], layout: FileLayout) -> WrittenRows:
        if self._mode is WriteMode.APPEND:
            files = write_files(layout, [self.batch(rows_of([one])) for one in ranges])
            return WrittenRows(files)
        written: list[WrittenFile] = []
        keys = {}
        for one in ranges:
            latest, rows = LatestRows(), rows_of([one])
            deleted = pa.array([is_tombstone(offset) for _, _, offset in rows])
            latest.add(self.batch(rows), pa.array([key_of(row[2]) for row in rows]), deleted)
            written += write_files(layout, latest.rows())
            keys[one.topic_partition] = latest.keys()
        return WrittenRows(written, keys)

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        values: dict[str, Any] = {
            "key": [key_of(offset) for _, _, offset in rows],
            "value": [b"v%d" % offset for _, _, offset in rows],
            "topic": [topic for topic, _, _ in rows],
            "partition": [number for _, number, _ in rows],
            "offset": [offset for _, _, offset in rows],
            "timestamp": [offset * self._us_per_offset for _, _, offset in rows],
        }
        columns = [
            pa.array(values[field.name]).cast(field.type)
            if field.name in values
            else pa.array([f"{field.name}-{offset}" for _, _, offset in rows], field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def cancel(self) -> None:
        """There is nothing to cancel."""

    def fraction_done(self) -> float:
        return 0.0


class TableWorld:
    """One pipeline from the topic ``t`` into a table."""

    def __init__(
        self,
        *ends: int,
        at_most: int = 20,
        open_table: Callable[[], LakeTable] | None = None,
        mode: WriteMode = WriteMode.APPEND,
    ) -> None:
        self.stored = Stored()
        self.log = Log(*ends)
        self.cluster = Cluster()
        self.at_most = at_most
        self.open_table = open_table
        self.mode = mode
        self.rows = ArrowTableRows(mode=mode)
        self.progress = RememberedProgress()
        self._runs = 0

    def begin(self, tick: Tick = never, lost_answers: int = 0) -> TableRunner:
        self._runs += 1
        if self.open_table is None:
            table = MemoryTable(self.stored, tick)
            table.lost_answers = lost_answers
        admin = LocalAdminClient(self.cluster, tick)
        real = None if self.open_table is None else self.open_table()
        begun = admin.begin_pipeline_run(
            NAME,
            owner=f"run {self._runs}",
            lease_ms=LEASE_MS,
            sink=table.sink if real is None else real.sink,
            take_over=True,
        )
        return TableRunner(
            ActiveRun(admin, begun, LEASE_MS),
            table=table if real is None else real,
            planner=LogPlanner(self.log, at_most=self.at_most),
            rows=MemoryTableRows(self.stored, tick, self.mode) if real is None else self.rows,
            progress=self.progress,
            mode=self.mode,
        )

    def run(self, tick: Tick = never, lost_answers: int = 0) -> TableRunner:
        """A whole run; the exception that ends it comes out."""
        run = self.begin(tick, lost_answers)
        run.prepare(NOW_MS)
        run.work()
        return run

    def attempt(self, tick: Tick) -> None:
        """A run that may be killed, or find that it is not in charge."""
        try:
            self.run(tick)
        except (Killed, PipelineError):
            return

    def expected(self) -> list[Row]:
        rows = [("t", n, offset) for n, end in self.log.ends.items() for offset in range(end)]
        return rows if self.mode is WriteMode.APPEND else sorted(latest_of(rows))

    def check(self) -> None:
        """Each offset once, and both positions at the ends."""
        assert sorted(self.stored.rows) == self.expected()
        ends = tuple(self.log.ends.values())
        assert self.cluster.offsets == ends
        marks = self.stored.position.marks
        assert tuple(marks[TopicPartition("t", n)].offset for n in self.log.ends) == ends
