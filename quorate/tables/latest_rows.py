"""The newest row of each key among the records of one partition, as upserts need it.

Rows that a later record replaces are dropped while records are read, so memory is taken by as many
rows as there are different keys, and not by as many as there are records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

THINNED_AT_ROWS: Final = 200_000
"""Fewer rows are not worth looking for those that were replaced."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows with what an upsert needs to know of them; all three have the same length."""

    rows: pa.Table
    keys: pa.ChunkedArray
    """The bytes of the keys, of which none is null."""
    is_tombstone: pa.ChunkedArray

    def filtered(self, mask: pa.Array) -> "KeyedRows":
        """Return the rows where the mask is true."""
        return KeyedRows(
            self.rows.filter(mask), self.keys.filter(mask), self.is_tombstone.filter(mask)
        )


class LatestRows:
    """Collects the rows of a partition in the order of their offsets."""

    def __init__(self) -> None:
        self._found: list[KeyedRows] = []
        self._rows = 0
        self._rows_after_thinning = 0

    def add(self, rows: pa.RecordBatch, keys: pa.Array, is_tombstone: pa.Array) -> None:
        """Add rows that are newer than all before."""
        self._found.append(
            KeyedRows(
                pa.Table.from_batches([rows]),
                pa.chunked_array([keys]),
                pa.chunked_array([is_tombstone]),
            )
        )
        self._rows += rows.num_rows
        if self._rows >= max(THINNED_AT_ROWS, 2 * self._rows_after_thinning):
            self._thin()

    def rows(self) -> Sequence[pa.RecordBatch]:
        """Return the newest row of each key that is not deleted, in the order of offsets."""
        self._thin()
        found: list[pa.RecordBatch] = []
        for one in self._found:
            found += one.filtered(pc.invert(one.is_tombstone)).rows.to_batches()
        return found

    def keys(self) -> pa.Array:
        """Return each key once, those that are deleted as well."""
        self._thin()
        chunks = [chunk for one in self._found for chunk in one.keys.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], pa.binary())

    def _thin(self) -> None:
        """Drop the rows that later ones replace."""
        if not self._found:
            return
        all_rows = KeyedRows(
            pa.concat_tables([one.rows for one in self._found]),
            pa.chunked_array([chunk for one in self._found for chunk in one.keys.chunks]),
            pa.chunked_array([chunk for one in self._found for chunk in one.is_tombstone.chunks]),
        )
        last = last_of_each(all_rows.keys)
        if len(last) < self._rows:
            mask = np.zeros(self._rows, bool)
            mask[last] = True
            all_rows = all_rows.filtered(pa.array(mask))
        self._found = [all_rows]
        self._rows = self._rows_after_thinning = len(last)


def last_of_each(keys: pa.ChunkedArray) -> np.ndarray:
    """Return the number of the last row of each key, in no order."""
    numbered = pa.table({"key": keys, "row": np.arange(len(keys))})
    last = numbered.group_by("key", use_threads=False).aggregate([("row", "max")])
    rows: np.ndarray = last["row_max"].to_numpy()
    return rows
