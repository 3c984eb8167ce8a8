"""A Delta table: rows and the position in one commit of its log.

The position is kept as Delta's own application transactions (``txn``), which every checkpoint of
the log carries on: one per partition of a topic, whose version is the next offset, and two for the
pipeline. Two runs that commit at once have these in common, so the log itself refuses the later
one. The offsets that a commit added are in its metadata as well, for those who read the history.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import DescribedTopic
from quorate.tables.data_files import FileLayout, WrittenFile
from quorate.tables.delta_files import present_files
from quorate.tables.earlier_rows import EarlierRows, Rewritten
from quorate.tables.lake_table import TableCommit, TableContent, Upkeep
from quorate.tables.partitioning import PartitionField, field_named
from quorate.tables.storage import (
    absolute_location,
    delete_files,
    delta_options,
    is_local,
    local_path,
    open_storage,
)
from quorate.tables.table_columns import all_nullable, grown_columns
from quorate.tables.table_config import TableConfig
from quorate.tables.table_errors import (
    CommitConflict,
    TableChanged,
    TableError,
    TableUnavailable,
)
from quorate.tables.table_position import Mark, TablePosition
from quorate.tables.write_mode import WriteMode

HISTORY_LOOKED_AT: Final = 200
_EPOCH: Final = date(1970, 1, 1)
_COLUMN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "hour": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "bucket": pa.int32(),
}


class DeltaLakeTable:
    """The table of one pipeline. See `LakeTable`."""

    def __init__(self, config: TableConfig, pipeline: str, table: DeltaTable) -> None:
        self._config = config
        self._pipeline = pipeline
        self._table = table
        self._earlier = EarlierRows()

    @property
    def sink(self) -> str:
        return f"delta:{self._config.location}#{self._table.metadata().id}"

    @property
    def table(self) -> DeltaTable:
        """The table as deltalake knows it."""
        return self._table

    def reload(self) -> None:
        with named(self._config):
            self._table = _opened(self._config)

    def fit(self, schema: pa.Schema) -> None:
        present = _arrow_schema(self._table)
        grown = grown_columns(self._config.name, present, schema, widens=False)
        if not grown:
            return
        with named(self._config):
            self._table.alter.add_columns(Schema.from_arrow(pa.schema(grown)).fields)
        self.reload()

    def content(self) -> TableContent:
        derived = {one.name for one in _partitioning(self._table) if one.transform != "identity"}
        with named(self._config):
            files = self._table.file_uris()
        return TableContent(
            files=files,
            schema=pa.schema(
                [one for one in _arrow_schema(self._table) if one.name not in derived]
            ),
            folder=table_uri(self._config),
            partitions_in_paths=bool(self._table.metadata().partition_columns),
        )

    def layout(self, prefix: str) -> FileLayout:
        partitions = self._table.metadata().partition_columns
        columns = [one for one in _arrow_schema(self._table) if one.name not in partitions]
        return FileLayout(
            folder=self._config.location,
            schema=pa.schema(columns),
            partitioning=_partitioning(self._table),
            target_bytes=self._config.target_bytes,
            compression=self._config.compression,
            storage=self._config.storage,
            prefix=prefix,
            version=(_types(self._table), tuple(partitions)),
        )

    def check_layout(self, layout: FileLayout) -> None:
        assert isinstance(layout.version, tuple)
        types, partitions = layout.version
        if tuple(self._table.metadata().partition_columns) != partitions:
            raise TableChanged(f"{self._config.name}: another writer has changed its partitions")
        now = _types(self._table)
        for name, type_ in types.items():
            if now.get(name) != type_:
                raise TableChanged(
                    f"{self._config.name}: another writer has dropped column {name}, or changed "
                    "its type"
                )

    # -- the position ----------------------------------------------------------------------------

    def position(
        self, topics: Mapping[str, DescribedTopic], *, was_reset: bool = False
    ) -> TablePosition:
        with named(self._config):
            commits = self._table.transaction_version(self._app())
            if commits is None:
                return TablePosition()
            epoch = self._table.transaction_version(self._app("run"))
            upserts = self._table.transaction_version(self._app("upsert"))
            marks: dict[TopicPartition, Mark] = {}
            for topic, described in topics.items():
                for number in range(described.partitions):
                    partition = TopicPartition(topic, number)
                    app = self._app(partition, described.topic_id)
                    offset = self._table.transaction_version(app)
                    if offset is not None:
                        marks[partition] = Mark(described.topic_id, offset)
            if topics and not was_reset:
                self._refuse_restored()
        mode = WriteMode.UPSERT if upserts else WriteMode.APPEND
        return TablePosition(commits, epoch or 0, marks, mode)

    def _app(self, of: TopicPartition | str = "", topic_id: bytes = b"") -> str:
        """Return the name of an application transaction."""
        name = f"quorate/{self._pipeline}"
        if isinstance(of, TopicPartition):
            return f"{name}/{of.topic}/{topic_id.hex()}/{of.partition}"
        return f"{name}/{of}" if of else name

    def _refuse_restored(self) -> None:
        """Refuse a table that was restored to an earlier version.

        RESTORE takes the rows back, but not the application transactions.
        """
        for commit in self._table.history(HISTORY_LOOKED_AT):
            if commit.get("quorate.pipeline") == self._pipeline:
                return
            if commit.get("operation") == "RESTORE":
                raise TableError(
                    f"{self._config.name}: somebody has restored the table to an earlier version "
                    f"(version {commit.get('version')} of its history), so its rows are not those "
                    f"of its offsets: reset the pipeline {self._pipeline} (quorate pipeline reset "
                    "--to-earliest) to fill it again"
                )

    # -- commits ---------------------------------------------------------------------------------

    def commit(self, change: TableCommit) -> None:
        with named(self._config):
            properties = self._properties(change)
            if change.removed:
                assert not change.files
                self._table.delete(_rows_of(change.removed), commit_properties=properties)
                if self._table.transaction_version(self._app()) == change.position.commits:
                    return
                # No row was there to delete, so deltalake has made no commit.
            earlier = self._without_earlier(change)
            try:
                self._table.create_write_transaction(
                    [
                        *(one.handle for one in earlier.removed),
                        *(self._add(one) for one in (*change.files, *earlier.written)),
                    ],
                    "append",
                    self._table.schema(),
                    partition_by=self._table.metadata().partition_columns,
                    commit_properties=properties,
                )
            except CommitFailedError:
                storage = open_storage(self._config.storage)
                delete_files(storage, [one.location for one in earlier.written])
                raise
            self._table.update_incremental()

    def _without_earlier(self, change: TableCommit) -> Rewritten:
        """Write the files anew that have earlier rows of the keys of a change."""
        if not change.replaced:
            return Rewritten()
        layout = self.layout(f"{self._pipeline}-upsert")
        return self._earlier.without(present_files(self._table, layout), change.replaced, layout)

    def _properties(self, change: TableCommit) -> CommitProperties:
        position = change.position
        transactions = [
            Transaction(self._app(), position.commits),
            Transaction(self._app("run"), position.run_epoch),
            Transaction(self._app("upsert"), int(position.mode is WriteMode.UPSERT)),
            *(
                Transaction(self._app(partition, mark.topic_id), mark.offset)
                for partition, mark in sorted(position.marks.items())
                if partition in change.moved
            ),
        ]
        ranges = {str(one.topic_partition): [one.start, one.end] for one in change.ranges}
        metadata = {"quorate.pipeline": self._pipeline, "quorate.ranges": json.dumps(ranges)}
        return CommitProperties(metadata, 0, transactions)

    def _add(self, file: WrittenFile) -> AddAction:
        fields = _partitioning(self._table)
        path = file.location.removeprefix(f"{self._config.location}/")
        return AddAction(
            path=quote(path, safe="/=-_.~"),
            size=file.size,
            partition_values={
                field.name: _partition_text(field, value)
                for field, value in zip(fields, file.key, strict=True)
            },
            modification_time=int(datetime.now(UTC).timestamp() * 1000),
            data_change=True,
            stats=_statistics(file),
        )

    # -- upkeep ----------------------------------------------------------------------------------

    def compact(self, small_bytes: int) -> Upkeep:
        self.reload()
        with named(self._config):
            done = self._table.optimize.compact(
                target_size=self._config.target_bytes,
                commit_properties=CommitProperties({"quorate.compaction": "true"}, 5),
            )
        self.reload()
        return Upkeep(files_before=done["numFilesRemoved"], files_after=done["numFilesAdded"])

    def expire(self, older_than_ms: int) -> Upkeep:
        """Write a checkpoint, and delete the log files that the retention of the table allows.

        Upserts replace files all the time, so these are deleted, too, once they are old enough.
        """
        self.reload()
        with named(self._config):
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
        if self.position({}).mode is WriteMode.UPSERT:
            self._vacuum(older_than_ms, lost_files=False)
        return Upkeep()

    def remove_orphans(self, older_than_ms: int) -> Upkeep:
        self.reload()
        return Upkeep(orphans_deleted=self._vacuum(older_than_ms, lost_files=True))

    def _vacuum(self, older_than_ms: int, *, lost_files: bool) -> int:
        """Delete files that were replaced before a moment, and those that no commit knows."""
        age = datetime.now(UTC) - datetime.fromtimestamp(older_than_ms / 1000, UTC)
        with named(self._config):
            deleted = self._table.vacuum(
                retention_hours=max(int(age / timedelta(hours=1)), 0 if lost_files else 1),
                dry_run=False,
                enforce_retention_duration=False,
                full=lost_files,
            )
        self.reload()
        return len(deleted)


def open_delta(config: TableConfig, pipeline: str, schema: pa.Schema) -> DeltaLakeTable:
    """Open the table, or create it with the columns of ``schema``.

    Raises:
        TableError: it cannot be opened or created, or cannot be written to.
    """
    with named(config):
        try:
            table = _opened(config)
        except TableNotFoundError:
            table = _created(config, schema)
    opened = DeltaLakeTable(config, pipeline, table)
    opened.fit(schema)
    return opened


def _opened(config: TableConfig) -> DeltaTable:
    return DeltaTable(table_uri(config), storage_options=delta_options(config.storage))


def table_uri(config: TableConfig) -> str:
    """Return the place of a table as deltalake takes it."""
    location = absolute_location(config.location)
    return str(local_path(location)) if is_local(location) else location


def _created(config: TableConfig, schema: pa.Schema) -> DeltaTable:
    columns = list(all_nullable(schema))
    for field in config.partitioning:
        if field.source not in schema.names:
            raise TableError(f"{config.name}: {field} names a column that the rows do not have")
        if field.transform != "identity":
            columns.append(pa.field(field.name, _COLUMN_TYPES[field.transform]))
    if is_local(config.location):
        local_path(config.location).mkdir(parents=True, exist_ok=True)
    return DeltaTable.create(
        table_uri(config),
        Schema.from_arrow(pa.schema(columns)),
        mode="ignore",
        partition_by=[field.name for field in config.partitioning],
        name=config.name,
        storage_options=delta_options(config.storage),
    )


@contextmanager
def named(config: TableConfig) -> Iterator[None]:
    """Raise the errors of deltalake and of the storage as errors of this table."""
    try:
        yield
    except TableNotFoundError:
        raise
    except CommitFailedError as error:
        raise CommitConflict(f"{config.name}: {_line(error)}") from error
    except (DeltaError, OSError) as error:
        raise TableUnavailable(
            f"table {config.name} at {config.location}: its storage refuses or does not answer: "
            f"{_line(error)}"
        ) from error
    except ValueError as error:
        raise TableError(f"table {config.name}: {_line(error)}") from error


def _line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0]


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _types(table: DeltaTable) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.schema().fields}


def _partitioning(table: DeltaTable) -> tuple[PartitionField, ...]:
    """Return the partition transforms of the table, in the order of its partition columns."""
    columns = table.metadata().partition_columns
    names = {field.name for field in table.schema().fields} - set(columns)
    return tuple(field_named(column, names) for column in columns)


def _partition_text(field: PartitionField, value: Any) -> str | None:  # noqa: ANN401
    """Return a partition value as the Delta protocol writes it."""
    if value is None:
        return None
    if field.transform == "day":
        return (_EPOCH + timedelta(days=value)).isoformat()
    if field.transform == "hour":
        moment = datetime.fromtimestamp(value * 3600, UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def _statistics(file: WrittenFile) -> str:
    """Return the statistics of a file in Delta's JSON, from those in its footer."""
    metadata = file.metadata()
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            name, found = column.path_in_schema, column.statistics
            if "." in name or found is None:
                continue
            nulls[name] = nulls.get(name, 0) + (found.null_count or 0)
            if not found.has_min_max:
                unknown.update([name] if found.num_values else [])
                continue
            least[name] = min(least.get(name, found.min), found.min)
            greatest[name] = max(greatest.get(name, found.max), found.max)
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": _bounds(least, unknown),
            "maxValues": _bounds(greatest, unknown, upwards=True),
            "nullCount": nulls,
        }
    )


def _bounds(
    values: Mapping[str, Any], unknown: set[str], *, upwards: bool = False
) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in values.items():
        if name in unknown:
            continue
        if isinstance(value, datetime):
            # Delta counts bounds in ms: an upper one is rounded up.
            cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
            value = cut + timedelta(milliseconds=1) if upwards and cut != value else cut
            shown[name] = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        elif isinstance(value, float):
            # JSON has no infinity, so such a bound is left out.
            if math.isfinite(value):
                shown[name] = value
        elif isinstance(value, bool | int | str):
            shown[name] = value
    return shown


def _rows_of(removed: Mapping[TopicPartition, int]) -> str:
    terms: Sequence[str] = [
        f"(topic = '{partition.topic}' AND partition = {partition.partition} "
        f'AND "offset" >= {offset})'
        for partition, offset in sorted(removed.items())
    ]
    return " OR ".join(terms)
