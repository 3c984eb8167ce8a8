"""Rewrites files of an Iceberg table: joins small ones, and removes rows, snapshots and lost files.

Joining small files changes no row, and the position of the pipeline stays as it is. If another
writer, as the pipeline itself, commits meanwhile, the upkeep gives up and is repeated later.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from quorate.common.topic_partition import TopicPartition
from quorate.tables.data_files import WITHOUT_BOUNDS, FileLayout, WrittenFile, write_files
from quorate.tables.earlier_rows import PresentFile
from quorate.tables.lake_table import Upkeep
from quorate.tables.storage import delete_files, files_below
from quorate.tables.table_errors import TableError

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata

GROUP_FILES_MIN: Final = 4
"""Fewer small files of a partition are not worth a commit."""
GROUP_BYTES_MAX: Final = 512 << 20
"""The size of the files that are joined at once."""

_NO_METRICS: Final = {f"write.metadata.metrics.column.{name}": "none" for name in WITHOUT_BOUNDS}
"""Data files have no statistics of these columns."""


def compact(table: "Table", layout: FileLayout, small_bytes: int) -> Upkeep:
    """Join the small files of each partition of the table into files of the target size."""
    groups = list(_groups(table, small_bytes))
    if not groups:
        return Upkeep()
    before = after = 0
    transaction = table.transaction()
    with transaction.update_snapshot(
        snapshot_properties={"quorate.compaction": "true"}
    ).overwrite() as overwrite:
        for tasks in groups:
            written = write_files(layout, _rows(table, tasks))
            for task in tasks:
                overwrite.delete_data_file(task.file)
            for one in written:
                overwrite.append_data_file(data_file_of(one, table.metadata))
            before, after = before + len(tasks), after + len(written)
    transaction.commit_transaction()
    return Upkeep(files_before=before, files_after=after)


def _groups(table: "Table", small_bytes: int) -> Iterator[list["FileScanTask"]]:
    """Yield groups of small files without deletes: those of one partition, in order of time."""
    by_partition: dict[Any, list[FileScanTask]] = {}
    for task in table.scan().plan_files():
        file = task.file
        is_present = file.spec_id == table.metadata.default_spec_id
        if file.file_size_in_bytes < small_bytes and is_present and not task.delete_files:
            by_partition.setdefault(repr(file.partition), []).append(task)
    for tasks in by_partition.values():
        group: list[FileScanTask] = []
        size = 0
        for task in sorted(tasks, key=lambda one: one.file.file_path):
            group.append(task)
            size += task.file.file_size_in_bytes
            if size >= GROUP_BYTES_MAX:
                yield group
                group, size = [], 0
        if len(group) >= GROUP_FILES_MIN:
            yield group


def data_file_of(file: WrittenFile, metadata: "TableMetadata") -> DataFile:
    """Return a written file as the manifests of the table describe it."""
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=file.metadata(),
        stats_columns=compute_statistics_plan(schema, {**metadata.properties, **_NO_METRICS}),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.location,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.key),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def rewrite_without(
    overwrite: Any,  # noqa: ANN401 - a snapshot producer of pyiceberg
    table: "Table",
    layout: FileLayout,
    removed: Mapping[TopicPartition, int],
) -> None:
    """Remove the rows at and above an offset of each partition; files that hold others, too, are
    written anew."""
    terms = [
        f"(topic = '{one.topic}' AND partition = {one.partition} AND offset >= {offset})"
        for one, offset in sorted(removed.items())
    ]
    for task in table.scan(" OR ".join(terms)).plan_files():
        kept = (rows.filter(_stays(rows, removed)) for rows in _rows(table, [task]))
        for written in write_files(layout, kept):
            overwrite.append_data_file(data_file_of(written, table.metadata))
        overwrite.delete_data_file(task.file)


def present_files(table: "Table") -> list[PresentFile]:
    """Return the data files of the present state of the table, to be searched for keys.

    Raises:
        TableError: another writer has marked rows of them as deleted.
    """
    return [_present_file(table, task) for task in table.scan().plan_files()]


def _present_file(table: "Table", task: "FileScanTask") -> PresentFile:
    if task.delete_files:
        raise TableError(
            f"another writer has marked rows of {task.file.file_path} as deleted: compact the "
            "table with that writer"
        )

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        return _rows(table, [task], columns)

    file = task.file
    partitions = _int_bounds(file, table.schema().find_field("partition").field_id)
    return PresentFile(file.file_path, file.file_size_in_bytes, partitions, read, file)


def _int_bounds(file: DataFile, field_id: int) -> tuple[int, int] | None:
    """Return the bounds that the manifest has of a column of 32-bit integers."""
    found = [(bounds or {}).get(field_id) for bounds in (file.lower_bounds, file.upper_bounds)]
    if any(bound is None or len(bound) != 4 for bound in found):
        return None
    least, greatest = (int.from_bytes(bound or b"", "little", signed=True) for bound in found)
    return least, greatest


def _stays(rows: pa.RecordBatch, removed: Mapping[TopicPartition, int]) -> pa.Array:
    """Return a mask of the rows that are not removed."""
    goes = pa.repeat(pa.scalar(False), rows.num_rows)
    for one, offset in removed.items():
        is_of = pc.and_(
            pc.equal(rows.column("topic"), one.topic),
            pc.equal(rows.column("partition"), one.partition),
        )
        goes = pc.or_(goes, pc.and_(is_of, pc.greater_equal(rows.column("offset"), offset)))
    return pc.invert(goes)


def _rows(
    table: "Table", tasks: list["FileScanTask"], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of files; columns that a file lacks may be missing.

    pyiceberg reads a list that is null as an empty one. So it only reads the files whose columns
    have other names than those of the table, which has to go by their ids.
    """
    schema = schema_to_pyarrow(table.schema(), include_field_ids=True)
    wanted = table.schema() if columns is None else table.schema().select(*columns)
    scan = ArrowScan(table.metadata, table.io, wanted, AlwaysTrue())
    for task in tasks:
        with table.io.new_input(task.file.file_path).open() as stream:
            file = pq.ParquetFile(stream)
            if _are_named_alike(file.schema_arrow, schema):
                yield from file.iter_batches(columns=columns)
                continue
        yield from scan.to_record_batches([task])


def _are_named_alike(file: Any, table: Any) -> bool:  # noqa: ANN401 - schemas or types of pyarrow
    """Return whether fields of a file and of the table have the same names where their ids are the
    same, and only there."""
    ours = {field.name: field for field in _fields(table)}
    ids = {_id(field): name for name, field in ours.items()}
    for field in _fields(file):
        if (field_id := _id(field)) is None or ids.get(field_id, field.name) != field.name:
            return False
        same = ours.get(field.name)
        if same is None:
            continue
        if _id(same) != field_id or not _are_named_alike(field.type, same.type):
            return False
    return True


def _fields(parent: Any) -> list[Any]:  # noqa: ANN401 - a schema or a type of pyarrow
    """Return the fields within a schema, a struct, a list or a map."""
    if isinstance(parent, pa.Schema):
        return list(parent)
    return [parent.field(number) for number in range(parent.num_fields)]


def _id(field: Any) -> bytes | None:  # noqa: ANN401 - a field of pyarrow
    found: bytes | None = (field.metadata or {}).get(b"PARQUET:field_id")
    return found


def expire(table: "Table", older_than_ms: int) -> Upkeep:
    """Forget snapshots that are older; the files that only they had are deleted."""
    before = _files(table)
    snapshots = len(table.snapshots())
    moment = datetime.fromtimestamp(older_than_ms / 1000, UTC)
    table.maintenance.expire_snapshots().older_than(moment).commit()
    table.refresh()
    expired = snapshots - len(table.snapshots())
    if not expired:
        return Upkeep()
    lost = before - _files(table)
    delete_files(table.io, sorted(lost))
    return Upkeep(snapshots_expired=expired)


def remove_orphans(table: "Table", older_than_ms: int) -> Upkeep:
    """Delete files below the table's folder that no snapshot knows and that are older."""
    known = _files(table)
    known.add(table.metadata_location)
    known.update(entry.metadata_file for entry in table.metadata.metadata_log)
    found = [
        one.location
        for one in files_below(table.io, table.location())
        if one.modified_ms < older_than_ms and one.location not in known
    ]
    delete_files(table.io, found)
    return Upkeep(orphans_deleted=len(found))


def _files(table: "Table") -> set[str]:
    """Return all files that the snapshots of a table have: data, manifests, lists of them."""
    found: set[str] = set()
    manifests: set[str] = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in manifests:
                continue
            manifests.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                found.add(entry.data_file.file_path)
    for statistics in table.metadata.statistics:
        found.add(statistics.statistics_path)
    return found | manifests
