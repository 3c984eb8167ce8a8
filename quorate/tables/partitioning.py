"""Partition transforms, and the division of rows by them.

``hour(timestamp)``, ``day(timestamp)``, ``identity(country)`` and ``bucket(16,key)`` are written
as in Spark's SQL for Iceberg. Values are those of the Iceberg specification, so Iceberg tables are
pruned by every engine; Delta tables get the same values as columns of their own.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quorate.common.configuration import ConfigError

_FIELD: Final = re.compile(r"(hour|day|identity)\(\s*(\w+)\s*\)|bucket\(\s*(\d+)\s*,\s*(\w+)\s*\)")
BUCKETS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One transform of one column."""

    transform: str
    """hour, day, identity or bucket."""
    source: str
    buckets: int = 0

    @property
    def name(self) -> str:
        """The name of the partition field; in a Delta table, of a column of its own."""
        if self.transform == "identity":
            return self.source
        count = f"_{self.buckets}" if self.buckets else ""
        return f"{self.source}_{self.transform}{count}"

    def __str__(self) -> str:
        inner = f"{self.buckets},{self.source}" if self.buckets else self.source
        return f"{self.transform}({inner})"


def parse_partitioning(text: str) -> tuple[PartitionField, ...]:
    """Return the fields of a list such as ``day(timestamp),bucket(16,key)``.

    Raises:
        ConfigError: it is not such a list, or names a field twice.
    """
    fields: list[PartitionField] = []
    rest = text.strip()
    while rest:
        found = _FIELD.match(rest)
        if found is None:
            raise ConfigError(
                f"{rest!r} is no partition transform: use hour(COLUMN), day(COLUMN), "
                "identity(COLUMN) or bucket(N,COLUMN), with commas between"
            )
        transform, source, buckets, bucketed = found.groups()
        if transform:
            fields.append(PartitionField(transform, source))
        else:
            if not 1 <= int(buckets) <= BUCKETS_MAX:
                raise ConfigError(f"{found[0]}: the number of buckets is from 1 to {BUCKETS_MAX}")
            fields.append(PartitionField("bucket", bucketed, int(buckets)))
        rest = rest[found.end() :].strip()
        if rest and not rest.startswith(","):
            raise ConfigError(f"there must be a comma before {rest!r}")
        rest = rest.removeprefix(",").strip()
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise ConfigError(f"{text}: a field is named twice")
    return tuple(fields)


def field_named(name: str, columns: Collection[str]) -> PartitionField:
    """Return the field of a partition column, whose name says what it is.

    Args:
        name: the partition column.
        columns: the columns that a field may be made of. If the name says nothing about any of
            them, it is a column of its own.
    """
    found = re.fullmatch(r"(\w+)_(hour|day|bucket_(\d+))", name)
    if found is None or found[1] not in columns:
        return PartitionField("identity", name)
    return PartitionField(found[2].split("_")[0], found[1], int(found[3] or 0))


PartitionKey = tuple[Any, ...]
"""The value of each partition field: int for hour, day and bucket, as Iceberg counts them; the
column's own value for identity."""

_HOUR_US: Final = 3_600_000_000


def divided(
    batch: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """Yield the rows of each partition, in their order."""
    if not fields:
        yield (), batch
        return
    columns = [_values(batch, field).dictionary_encode(null_encoding="encode") for field in fields]
    codes = columns[0].indices.cast(pa.int64())
    for column in columns[1:]:
        shifted = pc.multiply(codes, pa.scalar(len(column.dictionary), pa.int64()))
        codes = pc.add(shifted, column.indices.cast(pa.int64()))
    for code in pc.unique(codes):
        number = code.as_py()
        key: list[Any] = []
        for column in reversed(columns):
            number, index = divmod(number, len(column.dictionary))
            key.append(column.dictionary[index].as_py())
        rows = batch if len(pc.unique(codes)) == 1 else batch.filter(pc.equal(codes, code))
        yield tuple(reversed(key)), rows


def _values(batch: pa.RecordBatch, field: PartitionField) -> pa.Array:
    column = batch.column(field.source)
    if field.transform == "identity":
        return column
    if field.transform == "bucket":
        return _buckets(column, field.buckets)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    unit = _HOUR_US if field.transform == "hour" else 24 * _HOUR_US
    # The division of Arrow cuts towards zero, and Iceberg counts hours before 1970 downwards.
    quotient = pc.divide(micros, unit)
    is_above = pc.greater(pc.multiply(quotient, unit), micros)
    return pc.subtract(quotient, is_above.cast(pa.int64())).cast(pa.int32())


def _buckets(column: pa.Array, buckets: int) -> pa.Array:
    """Return Iceberg's bucket of each value. Each different value is hashed once."""
    from pyiceberg.transforms import BucketTransform

    encoded = column.dictionary_encode()
    of_value = BucketTransform(buckets).transform(_iceberg_type(column.type))
    hashed = pa.array([of_value(one.as_py()) for one in encoded.dictionary], pa.int32())
    return hashed.take(encoded.indices)


def _iceberg_type(arrow_type: pa.DataType) -> Any:  # noqa: ANN401 - of pyiceberg
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    field = pa.field("x", arrow_type, metadata={"PARQUET:field_id": "1"})
    return pyarrow_to_schema(pa.schema([field])).find_type("x")
