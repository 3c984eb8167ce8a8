"""The part of kernels that reads zigzag varints, as Kafka's records and Avro write numbers."""

import numpy as np
from numba.core import types

from quorate.spark.kernels.kernel_compiler import BYTES, INT, Integer, UInt8s, kernel_part

_INT_PAIR = types.UniTuple(INT, 2)  # type: ignore[no-untyped-call]


@kernel_part(_INT_PAIR(BYTES, INT, INT))
def zigzag_varint(body: UInt8s, at: Integer, end: Integer) -> tuple[Integer, Integer]:
    """Return the value of a zigzag varint in body[at:end], and the position behind it.

    The position is -1 if the varint is malformed.
    """
    if at >= end:
        return np.int64(0), np.int64(-1)
    byte = np.int64(body[at])
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    if at + 1 < end:
        byte = np.int64(body[at + 1])
        if byte < 0x80:
            raw |= byte << 7
            return (raw >> 1) ^ -(raw & 1), at + 2
    at += 1
    shift = 7
    while at < end and shift < 64:
        byte = np.int64(body[at])
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            # This is a logical shift: bit 63 of a ten-byte varint is data, not a sign.
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)
