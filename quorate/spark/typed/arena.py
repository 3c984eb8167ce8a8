"""One allocation for the buffers of many columns, which kernels fill by address."""

from typing import Final

import numpy as np
import pyarrow as pa

ALIGNMENT: Final = 64


class Arena:
    """One allocation that is divided into pieces. A piece is known by its place."""

    def __init__(self) -> None:
        self.size = 0
        self._buffer: pa.Buffer | None = None

    def reserve(self, size: int) -> int:
        """Reserve ``size`` bytes, and return their place. This is done before `allocate`."""
        place = self.size
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return place

    def allocate(self) -> None:
        """Allocate what was reserved. The bytes have any values."""
        self._buffer = pa.allocate_buffer(max(self.size, ALIGNMENT))

    @property
    def address(self) -> int:
        """The address of the allocation."""
        address: int = self.buffer.address
        return address

    @property
    def buffer(self) -> pa.Buffer:
        """The allocation."""
        return self._buffer

    def piece(self, place: int, size: int) -> pa.Buffer:
        """Return the bytes at a place, without a copy."""
        return self.buffer.slice(place, size)

    def int32(self, place: int, index: int) -> int:
        """Return the number at an index of the numbers of 32 bits at a place."""
        return int(np.frombuffer(self.piece(place + 4 * index, 4), np.int32)[0])

    def bitmap(self, place: int, rows: int) -> tuple[pa.Buffer | None, int]:
        """Return the bitmap of the rows' bytes at a place and the number of zeros among them.

        There is no bitmap if there are no zeros.
        """
        flags = np.frombuffer(self.piece(place, rows), np.uint8)
        zeros = rows - int(np.count_nonzero(flags))
        if not zeros:
            return None, 0
        return pa.py_buffer(np.packbits(flags, bitorder="little")), zeros

    def bits(self, place: int, rows: int) -> pa.Buffer:
        """Return the bits of the rows' bytes at a place."""
        flags = np.frombuffer(self.piece(place, rows), np.uint8)
        return pa.py_buffer(np.packbits(flags, bitorder="little"))
