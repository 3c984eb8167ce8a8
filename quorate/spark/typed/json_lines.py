"""Makes lines of JSON values, after a check that each one is a whole object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.spark.kernels.kernel_declaration import KernelArgument, KernelDeclaration
from quorate.spark.kernels.kernel_store import load_kernel

DEPTH_MAX: Final = 100
"""The deepest nesting of objects and arrays in a value."""
NOT_AN_OBJECT: Final = 1
TOO_DEEP: Final = 2
REASONS: Final[Mapping[int, str]] = {
    NOT_AN_OBJECT: "it is no JSON object",
    TOO_DEEP: f"its objects and arrays are nested more than {DEPTH_MAX} levels deep",
}

_BYTES: Final = KernelArgument.BYTES
JOIN_LINES: Final = KernelDeclaration(
    "quorate.spark.typed.json_lines_kernel",
    "join_lines",
    (
        _BYTES, KernelArgument.INT32S,  # values, their ends
        _BYTES, KernelArgument.INT, KernelArgument.INT,  # rows with values, prefix, rows
        _BYTES, _BYTES, KernelArgument.INT64S, _BYTES,  # brackets, lines, their ends, bad rows
    ),
    sources=(__name__,),
)  # fmt: skip
EVERY_KERNEL: Final = (JOIN_LINES,)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """The values of a column that are objects, one in each line."""

    body: pa.Buffer
    ends: npt.NDArray[np.int64]
    """The lines: line n is body[ends[n]:ends[n + 1]]."""
    rows: npt.NDArray[np.int64]
    """The row of each line."""
    refused: Mapping[int, str]
    """The rows whose values are no objects, and why."""


def json_lines(values: pa.Array, given: npt.NDArray[np.bool_], prefix: int) -> JsonLines:
    """Make lines of values.

    Args:
        values: binary values with ends of 32 bits.
        given: which rows have a value of more than ``prefix`` bytes.
        prefix: how many bytes before each value are left out.
    """
    rows = len(values)
    _, ends, data = values.buffers()
    places = np.frombuffer(ends, np.int32)[values.offset : values.offset + rows + 1]
    body = pa.allocate_buffer(int(places[rows] - places[0]) + rows + 1)
    line_ends = np.zeros(rows + 1, np.int64)
    bad, flags = np.zeros(rows, np.uint8), given.astype(np.uint8)
    stack = np.zeros(DEPTH_MAX, np.uint8)
    lines = load_kernel(JOIN_LINES)(
        0 if data is None else data.address, ends.address + 4 * values.offset,
        flags.ctypes.data, prefix, rows,
        stack.ctypes.data, body.address, line_ends.ctypes.data, bad.ctypes.data,
    )  # fmt: skip
    refused = {int(row): REASONS[int(bad[row])] for row in np.flatnonzero(bad)}
    return JsonLines(body, line_ends[: lines + 1], np.flatnonzero(given & (bad == 0)), refused)
