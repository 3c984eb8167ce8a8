"""Keys and values in JSON, decoded by Arrow's reader into the columns of a Spark type.

Arrow's reader has no maps. A type with a map in it is decoded by Python's own reader, record by
record, which is some twenty times slower.
"""

from dataclasses import dataclass, replace

from pyspark.sql.types import DataType


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON objects of one Spark type."""

    type: DataType
    with_prefix: bool = False
    """True if each record begins with the id of its schema."""

    @property
    def spark_type(self) -> DataType:
        """The type of the decoded column."""
        return self.type

    def selected(self, wanted: DataType) -> "JsonFormat":
        """Return the format that decodes only the fields that ``wanted`` has."""
        return replace(self, type=wanted)
