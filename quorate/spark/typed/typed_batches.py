"""Decodes the typed columns of the batches that a task reads."""

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import UndecodableValue
from quorate.spark.typed.decoders import decoder_of
from quorate.spark.typed.typed_columns import OFFSET, TypedColumn, TypedSelection
from quorate.spark.typed.value_formats import Decoded


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
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._schema.names], schema=self._schema
        )


class _Column:
    """A typed column and its decoder."""

    def __init__(self, about: TypedColumn) -> None:
        self.name = about.name
        self._about = about
        self._decoder = decoder_of(about.format)
        self._type = to_arrow_type(about.format.spark_type, timezone="UTC")

    def decode(self, values: pa.Array, *, permissive: bool) -> Decoded:
        return self._decoder.decode(values, self._type, stop_at_bad=not permissive)

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
