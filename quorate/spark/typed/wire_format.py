"""Reads the prefixes of all values of a column at once."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quorate.spark.typed.schema_prefix import PREFIX_BYTES

_ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The prefixes of a column of values."""

    present: npt.NDArray[np.bool_]
    """True where there is a value."""
    well_formed: npt.NDArray[np.bool_]
    """True where the value has a prefix."""
    ids: npt.NDArray[np.int64]
    """The ids of the schemas; of no meaning where the value has no prefix."""
    is_first: npt.NDArray[np.bool_]
    """True where a zero byte follows the prefix: Protobuf's first message of a schema."""


def read_prefixes(values: pa.Array) -> Prefixes:
    """Return the prefixes of binary values with ends of 32 bits."""
    rows = len(values)
    _, ends_buffer, data_buffer = values.buffers()
    ends = np.frombuffer(ends_buffer, np.int32)[values.offset : values.offset + rows + 1]
    present = np.ones(rows, bool)
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
    begins = ends[:-1].astype(np.int64)
    well_formed = present & (np.diff(ends) >= PREFIX_BYTES)
    if not well_formed.any():
        return Prefixes(present, well_formed, np.zeros(rows, np.int64), np.zeros(rows, bool))
    data = np.frombuffer(data_buffer, np.uint8)
    # Rows without a prefix are read at the place of one that has it.
    begins = np.where(well_formed, begins, begins[np.argmax(well_formed)])
    well_formed &= data[begins] == 0
    ids = np.zeros(rows, np.int64)
    for index in range(_ID_BYTES):
        ids = ids << 8 | data[begins + 1 + index]
    is_first = well_formed & (np.diff(ends) > PREFIX_BYTES)
    is_first[is_first] = data[begins[is_first] + PREFIX_BYTES] == 0
    return Prefixes(present, well_formed, ids, is_first)


def without_prefixes(values: pa.Array, begins: npt.NDArray[np.int64]) -> pa.Array:
    """Return the values without the bytes before ``begins``; those with a begin of 0 stay."""
    used = np.unique(begins[begins > 0])
    if len(used) == 1:
        return pc.binary_slice(values, int(used[0]), None)
    cut = [
        value if value is None else value[begin:]
        for value, begin in zip(values.to_pylist(), begins.tolist(), strict=True)
    ]
    return pa.array(cut, values.type)
