"""An Iceberg table: rows, their offsets and the position, in one commit of the catalog.

Each commit has the position twice: in a property of the table, which stays when snapshots expire,
and in the summary of its snapshot, which goes back with the table when somebody rolls it back. The
property names its snapshot; `_trusted` finds out whether that one is still part of the history.

pyiceberg would repeat a commit on the state of whoever was faster without looking at the position.
So its own retries are switched off, and `TableCommits` does it.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import (
    schema_to_pyarrow,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import UpdateSnapshot
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform
from sqlalchemy.exc import SQLAlchemyError

from quorate.spark.offset_ranges import DescribedTopic, OffsetRange
from quorate.tables.data_files import FileLayout
from quorate.tables.earlier_rows import EarlierRows, Rewritten
from quorate.tables.iceberg_upkeep import (
    compact,
    data_file_of,
    expire,
    present_files,
    remove_orphans,
    rewrite_without,
)
from quorate.tables.lake_table import TableCommit, TableContent, Upkeep
from quorate.tables.partitioning import PartitionField
from quorate.tables.storage import delete_files
from quorate.tables.table_columns import all_nullable, grown_columns
from quorate.tables.table_config import TableConfig
from quorate.tables.table_errors import (
    CommitConflict,
    TableChanged,
    TableError,
    TableUnavailable,
)
from quorate.tables.table_position import TablePosition, position_from_json

SUMMARY_POSITION_BYTES_MAX: Final = 16_384
"""A larger position is not repeated in the summary of each snapshot."""
_NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
_TABLE_PROPERTIES: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Version:
    """What files were written for: the schema and the partition spec of the table."""

    schema_id: int
    spec_id: int


class IcebergTable:
    """The table of one pipeline. See `LakeTable`."""

    def __init__(self, config: TableConfig, pipeline: str, table: Table) -> None:
        self._config = config
        self._pipeline = pipeline
        self._table = _without_retries(table)
        self._earlier = EarlierRows()

    @property
    def sink(self) -> str:
        return f"iceberg:{self._config.name}#{self._table.metadata.table_uuid}"

    @property
    def table(self) -> Table:
        """The table as pyiceberg knows it."""
        return self._table

    def reload(self) -> None:
        with named(self._config):
            self._table = _without_retries(self._table.catalog.load_table(self._config.identifier))

    def fit(self, schema: pa.Schema) -> None:
        present = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        grown = grown_columns(self._config.name, present, schema, widens=True)
        if not grown:
            return
        with named(self._config), self._table.update_schema() as update:
            update.union_by_name(pa.schema(grown))
        self.reload()

    def content(self) -> TableContent:
        with named(self._config):
            tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise TableError(
                f"{self._config.name}: another writer has marked rows as deleted: compact the "
                "table with that writer"
            )
        return TableContent(
            files=[task.file.file_path for task in tasks],
            schema=schema_to_pyarrow(self._table.schema(), include_field_ids=False),
            folder=self._table.location(),
        )

    def layout(self, prefix: str) -> FileLayout:
        metadata = self._table.metadata
        return FileLayout(
            folder=f"{metadata.location}/data",
            schema=schema_to_pyarrow(metadata.schema(), include_field_ids=True),
            partitioning=_partitioning(metadata),
            target_bytes=self._config.target_bytes,
            compression=self._config.compression,
            storage={**self._table.io.properties},
            prefix=prefix,
            version=_version(metadata),
        )

    def check_layout(self, layout: FileLayout) -> None:
        now = _version(self._table.metadata)
        assert isinstance(layout.version, _Version)
        if now.spec_id != layout.version.spec_id:
            raise TableChanged(f"{self._config.name}: another writer has changed its partitions")
        if now.schema_id == layout.version.schema_id:
            return
        fields = {column.field_id: column for column in self._table.schema().fields}
        before = self._table.schemas()[layout.version.schema_id]
        for column in before.fields:
            after = fields.get(column.field_id)
            if after is None or after.field_type != column.field_type:
                raise TableChanged(
                    f"{self._config.name}: another writer has dropped column {column.name}, or "
                    "changed its type"
                )
        known = {column.field_id for column in before.fields}
        for column in fields.values():
            if column.required and column.field_id not in known:
                raise TableChanged(f"{self._config.name}: column {column.name} is required now")

    # -- the position ----------------------------------------------------------------------------

    def position(
        self, topics: Mapping[str, DescribedTopic], *, was_reset: bool = False
    ) -> TablePosition:
        text = self._table.properties.get(self._key)
        if text is None:
            return TablePosition()
        try:
            kept = json.loads(text)
            if not was_reset:
                text = self._trusted(int(kept["snapshot"]), int(kept["sequence"]), text)
            return position_from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(
                f"{self._config.name}: the position in its property {self._key} cannot be read: "
                f"{error}"
            ) from error

    @property
    def _key(self) -> str:
        return f"quorate.{self._pipeline}"

    def _trusted(self, snapshot_id: int, sequence: int, text: str) -> str:
        """Return the position that belongs to the present snapshot.

        Walking back, the history meets the snapshot of the property, or an older one without having
        met it: then somebody has rolled the table back. If it ends before, the snapshot has
        expired.
        """
        metadata = self._table.metadata
        snapshot = metadata.current_snapshot()
        is_undone = snapshot is None
        while snapshot is not None:
            if snapshot.snapshot_id == snapshot_id:
                return text
            is_undone = is_undone or (snapshot.sequence_number or 0) < sequence
            summary = snapshot.summary
            if is_undone and summary is not None and (found := summary.get(self._key)):
                return str(found)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        if not is_undone:
            return text
        raise TableError(
            f"{self._config.name}: somebody has set the table back to a snapshot whose offsets are "
            f"not known: reset the pipeline {self._pipeline} to the offsets that it is to have "
            "(quorate pipeline reset), or roll the table forward again"
        )

    # -- commits ---------------------------------------------------------------------------------

    def commit(self, change: TableCommit) -> None:
        with named(self._config):
            position = json.dumps(change.position.to_json(), separators=(",", ":"))
            summary = {f"{self._key}.ranges": _ranges_text(change.ranges)}
            if len(position) <= SUMMARY_POSITION_BYTES_MAX:
                summary[self._key] = position
            transaction = self._table.transaction()
            if change.removed:
                layout = self.layout(f"{self._pipeline}-reset")
                with transaction.update_snapshot(snapshot_properties=summary).overwrite() as step:
                    rewrite_without(step, self._table, layout, change.removed)
            earlier = self._without_earlier(change)
            try:
                self._add(transaction.update_snapshot(snapshot_properties=summary), change, earlier)
                self._set_position(transaction, change.position)
                self._table = _without_retries(transaction.commit_transaction())
            except (CommitFailedException, ValidationException):
                delete_files(self._table.io, [one.location for one in earlier.written])
                raise

    def _without_earlier(self, change: TableCommit) -> Rewritten:
        """Write the files anew that have earlier rows of the keys of a change."""
        if not change.replaced:
            return Rewritten()
        layout = self.layout(f"{self._pipeline}-upsert")
        return self._earlier.without(present_files(self._table), change.replaced, layout)

    def _add(self, update: UpdateSnapshot, change: TableCommit, earlier: Rewritten) -> None:
        """Make the snapshot of a change.

        An empty one is made as well: it is what the commit is conditional on.
        """
        step = update.overwrite() if earlier.removed else update.fast_append()
        with step:
            for file in earlier.removed:
                step.delete_data_file(file.handle)
            for one in (*change.files, *earlier.written):
                step.append_data_file(data_file_of(one, self._table.metadata))

    def _set_position(self, transaction: Transaction, position: TablePosition) -> None:
        snapshot = transaction.table_metadata.current_snapshot()
        assert snapshot is not None
        kept = {
            **position.to_json(),
            "snapshot": snapshot.snapshot_id,
            "sequence": snapshot.sequence_number or 0,
        }
        transaction.set_properties({self._key: json.dumps(kept, separators=(",", ":"))})

    def compact(self, small_bytes: int) -> Upkeep:
        self.reload()
        with named(self._config):
            return compact(self._table, self.layout(f"compacted-{self._pipeline}"), small_bytes)

    def expire(self, older_than_ms: int) -> Upkeep:
        self.reload()
        with named(self._config):
            return expire(self._table, older_than_ms)

    def remove_orphans(self, older_than_ms: int) -> Upkeep:
        self.reload()
        with named(self._config):
            return remove_orphans(self._table, older_than_ms)


def open_iceberg(config: TableConfig, pipeline: str, schema: pa.Schema) -> IcebergTable:
    """Open the table, or create it with the columns of ``schema``.

    Raises:
        TableError: it cannot be opened or created, or cannot be written to.
    """
    with named(config):
        catalog = open_catalog(config)
        try:
            table = catalog.load_table(config.identifier)
        except NoSuchTableError:
            table = _created(catalog, config, schema)
    if table.format_version < 2:
        raise TableError(
            f"{config.name} has version {table.format_version} of the format, and 2 is needed: "
            "upgrade it (format-version = 2)"
        )
    opened = IcebergTable(config, pipeline, table)
    opened.fit(schema)
    return opened


def open_catalog(config: TableConfig) -> Catalog:
    """Open the catalog of a table."""
    properties = {**config.storage, **config.catalog}
    properties.setdefault("warehouse", config.location.rpartition("/")[0])
    name = properties.pop("name", "quorate")
    uri = properties.get("uri", "")
    if uri.startswith("sqlite:///"):
        from pathlib import Path

        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return load_catalog(name, **properties)


def _created(catalog: Catalog, config: TableConfig, schema: pa.Schema) -> Table:
    try:
        catalog.create_namespace(config.identifier[:-1])
    except NamespaceAlreadyExistsError:
        _logger.debug("namespace of %s is there", config.name)
    try:
        with (
            catalog.create_table_transaction(
                config.identifier,
                schema=all_nullable(schema),
                location=config.location,
                properties=_TABLE_PROPERTIES,
            ) as creation,
            creation.update_spec() as spec,
        ):
            for field in config.partitioning:
                spec.add_field(field.source, _transform(field), field.name)
    except TableAlreadyExistsError:
        _logger.info("another process has created %s", config.name)
    return catalog.load_table(config.identifier)


@contextmanager
def named(config: TableConfig) -> Iterator[None]:
    """Raise the errors of pyiceberg and of the storage as errors of this table."""
    try:
        yield
    except CommitFailedException as error:
        raise CommitConflict(f"{config.name}: {_line(error)}") from error
    except ValidationException as error:
        raise TableChanged(f"{config.name}: {_line(error)}") from error
    except (RESTError, SQLAlchemyError, OSError) as error:
        raise TableUnavailable(
            f"table {config.name} at {config.location}: its catalog or its storage refuses or does "
            f"not answer: {_line(error)}"
        ) from error
    except NoSuchTableError as error:
        raise TableError(
            f"table {config.name} is no longer in the catalog: create it again with its files, or "
            "forget the pipeline (quorate pipeline delete) to fill a new one"
        ) from error
    except (ValueError, NotImplementedError) as error:
        raise TableError(f"table {config.name}: {_line(error)}") from error


def _line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0]


def _without_retries(table: Table) -> Table:
    properties = {**table.metadata.properties, **_NO_RETRIES}
    return Table(
        table.name(),
        table.metadata.model_copy(update={"properties": properties}),
        table.metadata_location,
        table.io,
        table.catalog,
        table.config,
    )


def _version(metadata: TableMetadata) -> _Version:
    return _Version(metadata.current_schema_id, metadata.default_spec_id)


def _transform(field: PartitionField) -> Any:  # noqa: ANN401 - a Transform of pyiceberg
    if field.transform == "bucket":
        return BucketTransform(field.buckets)
    return {"hour": HourTransform, "day": DayTransform, "identity": IdentityTransform}[
        field.transform
    ]()


def _partitioning(metadata: TableMetadata) -> tuple[PartitionField, ...]:
    """Return the partition fields of the table, in the order of its spec."""
    schema, spec = metadata.schema(), metadata.spec()
    fields = []
    for field in spec.fields:
        source = schema.find_column_name(field.source_id)
        kind = field.transform
        assert source is not None
        if isinstance(kind, BucketTransform):
            fields.append(PartitionField("bucket", source, kind.num_buckets))
        elif isinstance(kind, HourTransform | DayTransform | IdentityTransform):
            fields.append(PartitionField(str(kind), source))
        else:
            raise TableError(
                f"the table is partitioned by {kind} of {source}, which Quorate cannot write: "
                "hour, day, identity and bucket are what it knows"
            )
    return tuple(fields)


def _ranges_text(ranges: Iterable[OffsetRange]) -> str:
    found: dict[str, dict[str, list[int]]] = {}
    for one in ranges:
        topic, number = one.topic_partition
        found.setdefault(topic, {})[str(number)] = [one.start, one.end]
    return json.dumps(found, separators=(",", ":"))
