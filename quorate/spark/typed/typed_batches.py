"""Decodes the typed columns of the batches that a task reads."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import UndecodableValue
from quorate.spark.typed.decoders import decoder_of
from quorate.spark.typed.typed_columns import OFFSET, TypedColumn, TypedSelection
from quorate.spark.typed.value_formats import Decoded


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row whose key or value cannot be decoded."""

    row: int
    reason: str
    """Names the column, and says why."""


class TypedBatches:
    """Turns batches of `TypedSelection.raw_schema` into batches of its schema."""

    def __init__(self, selection: TypedSelection, topic_partition: TopicPartition) -> None:
        self._selection = selection
        self._topic_partition = topic_partition
        self._schema = to_arrow_schema(selection.schema, timezone="UTC")
        self._columns = [_Column(column) for column in selection.columns]

    def typed(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its keys and values decoded.

        Raises:
            UndecodableValue: names topic, partition, offset, schema and reason (in mode failfast).
            RegistryUnavailable: the schema of a writer could not be asked for.
        """
        arrays = {name: raw.column(name) for name in raw.schema.names}
        for column in self._columns:
            decoded = column.decode(raw.column(column.name), permissive=self._selection.permissive)
            if decoded.fault is not None:
                offset = raw.column(OFFSET)[decoded.fault.row].as_py()
                raise UndecodableValue(
                    f"the {column.name} at offset {offset} of topic {self._topic_partition.topic} "
                    f"partition {self._topic_partition.partition} cannot be decoded: "
                    f"{decoded.fault.reason}; mode=permissive reads it as null"
                )
            arrays |= column.arrays(raw.column(column.name), decoded)
        return self._batch(arrays)

    def divided(self, raw: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadRow]]:
        """Return the rows whose keys and values are good, decoded, and the other rows' numbers.

        Raises:
            RegistryUnavailable: the schema of a writer could not be asked for.
            UndecodableValue: the registry does not know many of the ids.
        """
        arrays = {name: raw.column(name) for name in raw.schema.names}
        is_bad = np.zeros(raw.num_rows, bool)
        refused: dict[int, str] = {}
        for column in self._columns:
            values = raw.column(column.name)
            decoded = column.decode(values, permissive=True)
            arrays |= column.arrays(values, decoded)
            for row in np.flatnonzero(decoded.bad).tolist():
                refused.setdefault(row, f"{column.name}: {column.reason(values, row)}")
            is_bad |= decoded.bad != 0
        batch = self._batch(arrays)
        if refused:
            batch = batch.filter(pa.array(~is_bad))
        return batch, [BadRow(row, reason) for row, reason in sorted(refused.items())]

    def _batch(self, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
        columns = [arrays[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _Column:
    """A typed column and its decoder."""

    def __init__(self, about: TypedColumn) -> None:
        self.name = about.name
        self._about = about
        self._decoder = decoder_of(about.format)
        self._type = to_arrow_type(about.format.spark_type, timezone="UTC")

    def decode(self, values: pa.Array, *, permissive: bool) -> Decoded:
        return self._decoder.decode(values, self._type, stop_at_bad=not permissive)

    def reason(self, values: pa.Array, row: int) -> str:
        """Say why a value is bad, by decoding it alone."""
        alone = pa.array([values[row].as_py()], values.type)
        fault = self._decoder.decode(alone, self._type, stop_at_bad=True).fault
        return "it cannot be decoded" if fault is None else fault.reason

    def arrays(self, values: pa.Array, decoded: Decoded) -> dict[str, pa.Array]:
        """Return the columns of the query, by name."""
        about = self._about
        arrays = {about.corrupt_name: _bytes_of_bad(values, decoded)}
        if not about.flat:
            return {**arrays, about.name: decoded.array}
        # `flatten` and not `field`: it makes the fields of a null value null.
        parts = decoded.array.flatten()
        names = (field.name for field in about.fields)
        return {**arrays, **dict(zip(names, parts, strict=True))}


def _bytes_of_bad(values: pa.Array, decoded: Decoded) -> pa.Array:
    bad = np.flatnonzero(decoded.bad)
    if not bad.size:
        return pa.nulls(len(values), pa.binary())
    places = np.zeros(len(values), np.int64)
    places[bad] = bad
    return values.take(pa.array(places, mask=decoded.bad == 0))
