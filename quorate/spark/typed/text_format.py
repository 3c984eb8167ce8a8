"""Keys and values that are texts in UTF-8."""

from dataclasses import dataclass

from pyspark.sql.types import DataType, StringType


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Text in UTF-8."""

    @property
    def spark_type(self) -> DataType:
        """The type of the decoded column."""
        return StringType()

    def selected(self, wanted: DataType) -> "TextFormat":
        """Return the format itself: a text has no parts."""
        return self
