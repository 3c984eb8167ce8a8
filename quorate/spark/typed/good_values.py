"""Finds the good values of a column with decoders that only say that some value is bad."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.spark.typed.value_formats import Decoded, Fault


def decode_good(
    rows: int,
    given: npt.NDArray[np.int64],
    refused: Mapping[int, str],
    decode: Callable[[int, int], pa.Array],
    type_: pa.DataType,
    *,
    stop_at_bad: bool,
) -> Decoded:
    """Decode with a decoder that only says that some value of a column is bad.

    Columns are halved until the bad values are found: each one costs as many calls as the
    logarithm of the number of values.

    Args:
        rows: the number of rows.
        given: the rows that have a value, without those that were refused already.
        refused: the rows that were refused already, and why.
        decode: decodes the rows given[begin:end], and raises `ValueError` if one of them is bad.
        type_: the type of the column.
        stop_at_bad: end at the first bad value.
    """
    fault = None
    if stop_at_bad and refused:
        first = min(refused)
        given = given[given < first]
        fault = Fault(first, refused[first])
    bad = np.zeros(rows, np.uint8)
    bad[list(refused)] = 1
    good = np.zeros(rows, bool)
    pieces: list[pa.Array] = []
    open_ranges = [(0, len(given))]
    while open_ranges:
        begin, end = open_ranges.pop()
        try:
            pieces.append(decode(begin, end))
        except ValueError as error:
            middle = (begin + end) // 2
            if end - begin > 1:
                open_ranges += [(middle, end), (begin, middle)]
                continue
            bad[given[begin]] = 1
            if stop_at_bad:
                fault = Fault(int(given[begin]), str(error))
                break
        else:
            good[given[begin:end]] = True
    whole = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces or [pa.array([], type_)])
    if len(whole) < rows:
        whole = whole.take(pa.array(np.cumsum(good) - 1, mask=~good))
    return Decoded(whole, bad, fault)


def rows_with_values(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a flag for each row: whether it has a value."""
    if not values.null_count:
        return np.ones(len(values), bool)
    flags: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return flags
