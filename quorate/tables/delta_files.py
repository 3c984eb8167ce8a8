"""The data files of a Delta table, as they are searched for keys and replaced."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from quorate.tables.data_files import FileLayout
from quorate.tables.earlier_rows import PresentFile
from quorate.tables.storage import open_storage
from quorate.tables.table_errors import TableError


def present_files(table: DeltaTable, layout: FileLayout) -> list[PresentFile]:
    """Return the data files of the present state of the table, to be searched for keys.

    Raises:
        TableError: another writer has marked rows of them as deleted.
    """
    if next((one for one in pa.table(table.deletion_vectors()).to_batches() if len(one)), None):
        raise TableError(
            f"another writer has marked rows of {table.table_uri} as deleted: compact the table "
            "with that writer"
        )
    found = pa.table(table.get_add_actions())
    names = {field.name for field in layout.partitioning if field.transform == "identity"}
    types = {
        one.name: one.type
        for field in found.schema
        if field.name == "partition"
        for one in field.type
        if one.name in names
    }
    return [_present_file(one, types, layout) for one in found.to_pylist()]


def _present_file(
    add: Mapping[str, Any], types: Mapping[str, pa.DataType], layout: FileLayout
) -> PresentFile:
    path: str = add["path"]
    location = unquote(path) if "://" in path else f"{layout.folder}/{unquote(path)}"
    least, greatest = ((add.get(bound) or {}).get("partition") for bound in ("min", "max"))
    constants = {name: pa.scalar(add["partition"][name], type_) for name, type_ in types.items()}

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        with open_storage(layout.storage).new_input(location).open() as stream:
            for batch in pq.ParquetFile(stream).iter_batches(columns=columns):
                yield _with_constants(batch, constants, columns)

    return PresentFile(
        location,
        add["size_bytes"],
        None if least is None or greatest is None else (least, greatest),
        read,
        RemoveAction(path, True, time.time_ns() // 1_000_000, add["size_bytes"]),
    )


def _with_constants(
    batch: pa.RecordBatch, constants: Mapping[str, pa.Scalar], columns: Sequence[str] | None
) -> pa.RecordBatch:
    """Return the batch with the columns that are not in the file, as they are in its path."""
    for name, value in constants.items():
        if columns is None or name in columns:
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return batch
