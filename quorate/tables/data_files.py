"""Writes rows as Parquet files of a table, on whatever host has the rows.

A file is described to the driver by its footer, from which Iceberg and Delta take their
statistics. Names are unique, and no reader sees a file before the driver has committed it.
"""

import contextlib
import dataclasses
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from quorate.common.topic_partition import TopicPartition
from quorate.tables.partitioning import PartitionField, PartitionKey, divided
from quorate.tables.storage import delete_files, make_durable, open_storage
from quorate.tables.table_errors import TableError
from quorate.tables.write_mode import KEY, RAW_KEY

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream

ROW_GROUP_BYTES: Final = 64 << 20
"""The size in memory of the rows that are collected for a row group."""
OPEN_FILES_MAX: Final = 32
"""The number of partitions that a task writes at once; more close the one that was opened first."""
WITHOUT_BOUNDS: Final = frozenset({KEY, RAW_KEY, "value"})
"""Columns whose values hardly ever repeat: neither a dictionary nor bounds are worth their time."""
_ASCENDING: Final = ("offset", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """How and where data files are written. It travels to executors by pickle."""

    folder: str
    """The location of the folder of data files."""
    schema: pa.Schema
    """The columns of a file, with Iceberg's field ids where the table has them."""
    partitioning: tuple[PartitionField, ...]
    target_bytes: int
    compression: str
    storage: Mapping[str, str]
    prefix: str
    """The beginning of all names: the pipeline and its run."""
    version: object = None
    """What the table compares to see whether the files still fit."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete data file that is not committed."""

    location: str
    size: int
    rows: int
    key: PartitionKey
    footer: bytes

    def metadata(self) -> Any:  # noqa: ANN401 - of pyarrow
        """Return the footer as pyarrow reads it."""
        return pq.read_metadata(pa.BufferReader(self.footer))


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """The rows of a batch, written and not committed."""

    files: Sequence[WrittenFile]
    keys: Mapping[TopicPartition, pa.Array] = dataclasses.field(default_factory=dict)
    """For upserts: the keys of the batch, as bytes, once each."""


def write_files(layout: FileLayout, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
    """Write all rows, and return the files. If anything fails, no file is left."""
    writer = DataFileWriter(layout)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abandon()
        raise


class DataFileWriter:
    """Writes the rows of one task, each partition of the table into files of its own."""

    def __init__(self, layout: FileLayout) -> None:
        self._layout = layout
        self._storage = open_storage(layout.storage)
        self._open: dict[PartitionKey, _OpenFile] = {}
        self._written: list[WrittenFile] = []
        self._token = secrets.token_hex(6)
        self._files = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; columns of the table that it lacks are null."""
        for key, rows in divided(self._completed(batch), self._layout.partitioning):
            if not rows.num_rows:
                continue
            file = self._open.get(key) or self._opened(key)
            if file.write(rows) >= self._layout.target_bytes:
                self._close(key)

    def close(self) -> list[WrittenFile]:
        """Complete all files, and return them."""
        for key in list(self._open):
            self._close(key)
        return self._written

    def abandon(self) -> None:
        """Delete everything that was written."""
        for file in self._open.values():
            file.drop()
        written = [one.location for one in self._written]
        delete_files(self._storage, [one.location for one in self._open.values()] + written)

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with null columns for those that the table has and the rows have not.

        Raises:
            TableError: such a column is required.
        """
        known = set(batch.schema.names)
        for field in self._layout.schema:
            if field.name not in known:
                if not field.nullable:
                    raise TableError(
                        f"column {field.name} is required, and the rows do not have it"
                    )
                batch = batch.append_column(field.name, pa.nulls(batch.num_rows, field.type))
        for one in self._layout.partitioning:
            if one.source not in batch.schema.names:
                batch = batch.append_column(one.source, pa.nulls(batch.num_rows, pa.string()))
        return batch

    def _opened(self, key: PartitionKey) -> "_OpenFile":
        if len(self._open) >= OPEN_FILES_MAX:
            self._close(next(iter(self._open)))
        self._files += 1
        folders = [
            f"{field.name}={quote(str(value), safe='')}"
            for field, value in zip(self._layout.partitioning, key, strict=True)
        ]
        name = f"{self._layout.prefix}-{self._token}-{self._files:05}.parquet"
        location = "/".join([self._layout.folder, *folders, name])
        stream = self._storage.new_output(location).create(overwrite=True)
        self._open[key] = file = _OpenFile(location, key, stream, self._layout)
        return file

    def _close(self, key: PartitionKey) -> None:
        self._written.append(self._open.pop(key).close())


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(
        self, location: str, key: PartitionKey, stream: "OutputStream", layout: FileLayout
    ) -> None:
        self.location = location
        self._key = key
        self._stream: Any = stream
        self._schema = layout.schema
        self._writer = pq.ParquetWriter(
            stream,
            layout.schema,
            compression=layout.compression,
            store_schema=False,
            **encodings_of(layout.schema),
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> int:
        """Take the rows, and return the size of the file so far, as an estimate."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group()
        return int(self._stream.tell())

    def close(self) -> WrittenFile:
        """Complete the file, and make it durable."""
        self._write_group()
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        make_durable(self.location)
        footer = pa.BufferOutputStream()
        self._writer.writer.metadata.write_metadata_file(footer)
        return WrittenFile(
            self.location, size, self._rows, self._key, footer.getvalue().to_pybytes()
        )

    def drop(self) -> None:
        """Stop writing; the file is deleted by the caller."""
        self._waiting.clear()
        # Without a footer; otherwise the writer would write it when it is collected.
        self._writer.is_open = False
        with contextlib.suppress(OSError):
            self._stream.close()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        arrays = [
            pa.chunked_array([batch.column(field.name) for batch in self._waiting]).cast(field.type)
            for field in self._schema
        ]
        rows = pa.Table.from_arrays(arrays, schema=self._schema)
        self._waiting, self._waiting_bytes = [], 0
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))


def encodings_of(schema: pa.Schema) -> dict[str, Any]:
    """Return how pyarrow encodes the columns, and of which it writes statistics."""
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    ascending = [name for name in _ASCENDING if name in leaves]
    plain = (*WITHOUT_BOUNDS, *_ASCENDING)
    return {
        "use_dictionary": [name for name in leaves if name not in plain],
        "column_encoding": dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in leaves if name not in WITHOUT_BOUNDS],
    }


def _leaves(path: str, type_: pa.DataType) -> Iterator[str]:
    """Yield the paths of the columns that Parquet makes of one of Arrow."""
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(type_):
        yield from _leaves(f"{path}.key_value.key", type_.key_type)
        yield from _leaves(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    else:
        yield path
