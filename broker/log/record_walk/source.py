"""The walk as numba compiles it. Nothing imports this module but the compiler beside it.

A record: length varint | attributes i8 | timestamp delta varlong | offset delta varint | key length
varint, key | value length varint, value | header count varint | headers, each key length varint,
key, value length varint, value. Varints are zigzag, and a length of -1 is null.

The bytes are whatever somebody sent. So no read depends on a number that was not checked: every
position is compared with the end of its record, and every length with the bytes that are left. The
functions use nothing but their arguments, so the machine code needs no other code and no data.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba.core import types

from quorate.broker.log.record_walk.layout import (
    AT,
    BAD_HEADERS,
    BAD_KEY,
    BAD_LENGTH,
    BAD_OFFSET_DELTA,
    BAD_TIMESTAMP_DELTA,
    BAD_VALUE,
    BASE_TIMESTAMP,
    COUNT,
    EARLIEST,
    FEWER_RECORDS,
    GREATEST,
    LATEST,
    LISTED_MAX,
    MORE_BYTES,
    NEEDS_KEYS,
    NO_KEY,
    NO_TIMESTAMP,
    OK,
    RECORD,
    REFUSED,
    ROW_NUMBERS,
    ROWS,
    SIZE,
    STEPS,
    TIMESTAMP_OUT_OF_RANGE,
    TIMESTAMP_OVERFLOW,
    UNFINISHED,
    WRONG_LENGTH,
)

F = TypeVar("F", bound=Callable[..., Any])
UInt8s = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Integer = int | np.int64

_BYTES: Final = types.CPointer(types.uint8)  # type: ignore[no-untyped-call]
_INT64S: Final = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
_INT: Final = types.int64
_INT_PAIR: Final = types.UniTuple(_INT, 2)  # type: ignore[no-untyped-call]
_NOT_NEGATIVE: Final = 0x7FFFFFFFFFFFFFFF


def _compiled(signature: Any) -> Callable[[F], F]:  # noqa: ANN401 - numba has no types
    njit: Any = numba.njit  # The stubs do not know the options that leave Python out.

    def decorate(function: F) -> F:
        compiled: F = njit(
            signature, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
        )(function)
        return compiled

    return decorate


@_compiled(_INT_PAIR(_BYTES, _INT, _INT, _INT))
def _varint(records: UInt8s, at: Integer, end: Integer, bits: Integer) -> tuple[Integer, Integer]:
    """Return the zigzag varint in records[at:end], and the position behind it.

    The position is -1 if the varint does not end there, or has more than ``bits`` bits.
    """
    raw = np.int64(0)
    shift = 0
    while at < end:
        byte = np.int64(records[at])
        at += 1
        if shift + 7 > bits and byte >> (bits - shift):
            return np.int64(0), np.int64(-1)
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & _NOT_NEGATIVE) ^ -(raw & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@_compiled(_INT(_BYTES, _INT64S))
def walk(records: UInt8s, block: Int64s) -> int:  # noqa: C901
    """Walk over all records, and write the answer into the block.

    This is one function, because the state of a loop over all bytes would have to be passed
    around. Varints of one byte, which are nearly all, are decoded inline.

    Returns:
        The status of the records.
    """
    size = block[SIZE]
    base = block[BASE_TIMESTAMP]
    earliest = block[EARLIEST]
    latest = block[LATEST]
    needs_keys = block[NEEDS_KEYS]
    steps = block[STEPS]
    at: Integer = np.int64(0)
    length: Integer
    delta: Integer
    offset: Integer
    key: Integer
    value: Integer
    headers: Integer
    greatest: Integer = np.int64(NO_TIMESTAMP)
    refused = 0
    block[GREATEST] = NO_TIMESTAMP
    block[RECORD] = 0
    block[AT] = 0
    block[REFUSED] = 0
    for record in range(block[COUNT]):
        block[RECORD] = record
        block[AT] = at
        steps -= 1
        if steps < 0:
            return UNFINISHED
        if at >= size:
            return FEWER_RECORDS
        byte = np.int64(records[at])
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            length, at = _varint(records, at, size, 32)
        if at < 0 or length < 1 or length > size - at:
            return BAD_LENGTH
        end = at + length
        at += 1
        if at < end and records[at] < 0x80:
            byte = np.int64(records[at])
            delta = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            delta, at = _varint(records, at, end, 64)
            if at < 0:
                return BAD_TIMESTAMP_DELTA
        if at < end and records[at] < 0x80:
            byte = np.int64(records[at])
            offset = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            offset, at = _varint(records, at, end, 32)
        if at < 0 or offset != record:
            return BAD_OFFSET_DELTA
        if at < end and records[at] < 0x80:
            byte = np.int64(records[at])
            key = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            key, at = _varint(records, at, end, 32)
        if at < 0 or key < -1 or key > end - at:
            return BAD_KEY
        at += max(key, 0)
        if at < end and records[at] < 0x80:
            byte = np.int64(records[at])
            value = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            value, at = _varint(records, at, end, 32)
        if at < 0 or value < -1 or value > end - at:
            return BAD_VALUE
        at += max(value, 0)
        if at < end and records[at] < 0x80:
            byte = np.int64(records[at])
            headers = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            headers, at = _varint(records, at, end, 32)
        # A header has at least two bytes: the lengths of its key and of its value.
        if at < 0 or headers < 0 or headers * 2 > end - at:
            return BAD_HEADERS
        if headers > 0:
            steps -= headers
            if steps < 0:
                return UNFINISHED
            for _ in range(headers):
                length, at = _varint(records, at, end, 32)
                if at < 0 or length < 0 or length > end - at:
                    return BAD_HEADERS
                length, at = _varint(records, at + length, end, 32)
                if at < 0 or length < -1 or length > end - at:
                    return BAD_HEADERS
                at += max(length, 0)
        if at != end:
            return WRONG_LENGTH
        timestamp = base + delta
        problem = 0
        if key < 0 and needs_keys != 0:
            problem = NO_KEY
        elif ((base ^ timestamp) & (delta ^ timestamp)) < 0:
            problem = TIMESTAMP_OVERFLOW
        elif timestamp != NO_TIMESTAMP and (timestamp < earliest or timestamp > latest):
            problem = TIMESTAMP_OUT_OF_RANGE
        if problem != 0:
            if refused < LISTED_MAX:
                row = ROWS + ROW_NUMBERS * refused
                block[row] = record
                block[row + 1] = problem
                block[row + 2] = timestamp
            refused += 1
        greatest = max(greatest, timestamp)
    block[AT] = at
    if at != size:
        return MORE_BYTES
    block[GREATEST] = greatest
    block[REFUSED] = refused
    return OK
