"""What the formats of keys and values have in common: a Spark type, and decoders on the executors.

A format is made on the driver, where the schema of the reader is found, and travels to the
executors by pickle. There it makes one decoder for each task. The driver imports neither numpy nor
pyarrow for it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from pyspark.sql.types import DataType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded column."""

    array: "pa.Array"
    """The values; null where there was none, and where it is bad. After a fault, only those before
    it."""
    bad: "npt.NDArray[np.uint8]"
    """A number for each row, 0 where the value is good."""
    fault: "Fault | None" = None
    """The first bad value, if the decoder was to stop there."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A bad value."""

    row: int
    reason: str
    """Why it is bad, and the id of its schema if it has one."""


class ValueDecoder(Protocol):
    """Decodes the values of one task."""

    def decode(self, values: "pa.Array", type_: "pa.DataType", *, stop_at_bad: bool) -> Decoded:
        """Decode binary values into a column of the format's type.

        Raises:
            RegistryUnavailable: the schema of a writer could not be asked for.
        """


class ValueFormat(Protocol):
    """How the values of a column are decoded."""

    @property
    def spark_type(self) -> DataType:
        """The type of the decoded column."""

    def selected(self, wanted: DataType) -> Self:
        """Return the format that decodes only what ``wanted`` has of the type."""
