"""Encodes the keys and values of the batches that a task writes."""

from collections.abc import Iterator

import pyarrow as pa

from quorate.spark.typed.value_encoders import ColumnEncoding


def encoded_batches(
    batches: Iterator[pa.RecordBatch], encodings: tuple[ColumnEncoding, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with their keys and values as bytes.

    Raises:
        RowError: a row does not fit its schema; names the column.
    """
    encoders = [(one.name, one.encoder()) for one in encodings]
    for batch in batches:
        encoded = batch
        for name, encode in encoders:
            place = batch.schema.names.index(name)
            encoded = encoded.set_column(place, name, encode(batch.column(place)))
        yield encoded
