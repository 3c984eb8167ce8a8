"""The columns of the metadata log, and the conversion of frames of changes into Arrow batches."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quorate_proto.v1.admin_pb2 import (
    ConfigKeyChange,
    MetadataAuthor,
    MetadataChanges,
    PartitionLeaves,
)

if TYPE_CHECKING:
    import pyarrow as pa

_BROKERS: Final = ArrayType(IntegerType())
_INT, _LONG, _TEXT, _TIME = IntegerType(), LongType(), StringType(), TimestampType()

Values = Sequence[Any]
"""The values of a column, one for each row of a frame; None for null."""


def metadata_schema() -> StructType:
    """Return all columns."""
    return StructType([StructField(name, kind) for name, (kind, _) in _COLUMNS.items()])


def batch_of(frame: MetadataChanges, rows: Sequence[int], schema: "pa.Schema") -> "pa.RecordBatch":
    """Return some rows of a frame, in the columns of ``schema``, all of which the source knows."""
    import pyarrow as pa

    arrays = []
    for field in schema:
        values = _COLUMNS[field.name][1](frame)
        arrays.append(pa.array([values[row] for row in rows], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# --- how each column is read out of a frame -------------------------------------------------------

_Column = Callable[[MetadataChanges], Values]
_OptionalField = Literal["controller_epoch", "writer_broker", "principal"]


def _plain(name: str, none: object = None) -> _Column:
    """Read a field of the frame. The value ``none`` stands for null."""
    return lambda frame: [None if value == none else value for value in getattr(frame, name)]


def _pointing(places: str, values: Callable[[MetadataChanges], Values]) -> _Column:
    """Read a field that holds positions in a short list of values."""

    def column(frame: MetadataChanges) -> Values:
        found = values(frame)
        return [found[place] for place in getattr(frame, places)]

    return column


def _author(value_of: Callable[[MetadataAuthor], Any]) -> _Column:
    """A field of who wrote a row."""
    return _pointing("author_of", lambda frame: list(map(value_of, frame.authors)))


def _on_behalf(value_of: Callable[[MetadataAuthor], Any]) -> _Column:
    """A field of whom a row was written for; None: for nobody but the writer."""
    return _author(lambda author: value_of(author) if author.HasField("principal") else None)


def _optional(name: _OptionalField) -> _Column:
    return _author(lambda author: getattr(author, name) if author.HasField(name) else None)


def _leaf(side: str, name: str) -> _Column:
    def column(frame: MetadataChanges) -> Values:
        leaves: PartitionLeaves = getattr(frame, side)
        values: list[Any] = [None] * len(frame.offsets)
        for row, value in zip(leaves.rows, getattr(leaves, name), strict=True):
            values[row] = value
        return values

    return column


def _brokers(side: str, name: str) -> _Column:
    def column(frame: MetadataChanges) -> Values:
        leaves: PartitionLeaves = getattr(frame, side)
        lists = [list(one.ids) for one in leaves.lists]
        values: list[Any] = [None] * len(frame.offsets)
        for row, place in zip(leaves.rows, getattr(leaves, name), strict=True):
            values[row] = lists[place]
        return values

    return column


def _config(value_of: Callable[[ConfigKeyChange], str | None]) -> _Column:
    def column(frame: MetadataChanges) -> Values:
        values: list[Any] = [None] * len(frame.offsets)
        for change in frame.configs:
            values[change.row] = value_of(change)
        return values

    return column


_COLUMNS: Final[dict[str, tuple[DataType, _Column]]] = {
    "offset": (_LONG, _plain("offsets")),
    "record": (_INT, _plain("record_indexes")),
    "time": (_TIME, _author(lambda author: author.timestamp_ms * 1_000 or None)),
    "controller_epoch": (_INT, _optional("controller_epoch")),
    "writer": (_TEXT, _author(lambda author: author.writer)),
    "writer_broker": (_INT, _optional("writer_broker")),
    "principal": (_TEXT, _optional("principal")),
    "client_host": (_TEXT, _on_behalf(lambda author: author.client_host)),
    "client_id": (_TEXT, _on_behalf(lambda author: author.client_id)),
    "api": (_TEXT, _on_behalf(lambda author: author.api)),
    "forwarded_by": (
        _INT,
        _author(lambda author: None if author.forwarded_by < 0 else author.forwarded_by),
    ),
    "record_type": (_TEXT, _pointing("record_type_of", lambda frame: frame.record_types)),
    "key": (_TEXT, _plain("keys")),
    "old": (_TEXT, _plain("olds", "")),
    "new": (_TEXT, _plain("news", "")),
    "topic": (_TEXT, _plain("topics", "")),
    "partition": (_INT, _plain("partitions", -1)),
    "leader": (_INT, _leaf("after", "leaders")),
    "leader_epoch": (_INT, _leaf("after", "leader_epochs")),
    "isr": (_BROKERS, _brokers("after", "isrs")),
    "replicas": (_BROKERS, _brokers("after", "replicas")),
    "old_leader": (_INT, _leaf("before", "leaders")),
    "old_leader_epoch": (_INT, _leaf("before", "leader_epochs")),
    "old_isr": (_BROKERS, _brokers("before", "isrs")),
    "old_replicas": (_BROKERS, _brokers("before", "replicas")),
    "broker": (_INT, _plain("brokers", -1)),
    "entity_type": (_TEXT, _config(lambda change: change.entity_type)),
    "entity_name": (_TEXT, _config(lambda change: change.entity_name)),
    "config": (_TEXT, _config(lambda change: change.key)),
    "old_value": (_TEXT, _config(lambda change: change.old if change.HasField("old") else None)),
    "new_value": (_TEXT, _config(lambda change: change.new if change.HasField("new") else None)),
}
