"""The compiled part of reading JSON: it checks that each value is one object, and makes lines.

The reader of JSON takes lines, and says only that some line is bad. Over values that are no objects
it crashes or mixes up lines, so nothing else may reach it. A value passes if it is one pair of
braces, with all brackets and quotes within it closed in order and not nested deeply. Whether it is
JSON besides is for the reader to say.
"""

import numpy as np

from quorate.spark.kernels.kernel_compiler import (
    Int32s,
    Int64s,
    Integer,
    UInt8s,
    copy_bytes,
    kernel,
)
from quorate.spark.typed.json_lines import (
    DEPTH_MAX,
    JOIN_LINES,
    NOT_AN_OBJECT,
    TOO_DEEP,
)

QUOTE, BACKSLASH, SPACE, NEWLINE = 0x22, 0x5C, 0x20, 0x0A
FIRST_PLAIN, LAST_PLAIN = 0x23, 0x5A
"""Digits, signs, commas, colons and capital letters: nothing that opens or closes."""
OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET = 0x7B, 0x7D, 0x5B, 0x5D


@kernel(JOIN_LINES)
def join_lines(  # noqa: C901
    values: UInt8s, ends: Int32s, given: UInt8s, prefix: Integer, rows: Integer,
    stack: UInt8s, out: UInt8s, line_ends: Int64s, bad: UInt8s,
) -> int:  # fmt: skip
    """Write the values that are objects as lines, and mark the others.

    Returns:
        The number of lines.
    """
    size: Integer = np.int64(0)
    lines = 0
    for row in range(rows):
        if not given[row]:
            continue
        begin: Integer = np.int64(ends[row]) + prefix
        stop = np.int64(ends[row + 1])
        while begin < stop and (values[begin] == SPACE or 0x09 <= values[begin] <= 0x0D):
            begin += 1
        status = NOT_AN_OBJECT
        depth = 0
        closed = False
        if begin < stop and values[begin] == OPEN_BRACE:
            status = 0
            copy_bytes(out, size, values, begin, stop - begin)
        at = begin
        while at < stop and status == 0:
            byte = values[at]
            if byte <= SPACE:
                if byte == NEWLINE or byte == 0x0D:
                    out[size + at - begin] = SPACE
            elif closed:
                status = NOT_AN_OBJECT
            elif FIRST_PLAIN <= byte <= LAST_PLAIN:
                pass
            elif byte == QUOTE:
                # Texts are most of a value, so they have a loop of their own, which looks for less.
                at += 1
                while at < stop and values[at] != QUOTE:
                    if values[at] == BACKSLASH:
                        at += 1
                    elif values[at] < SPACE:
                        status = NOT_AN_OBJECT
                    at += 1
                if at >= stop:
                    status = NOT_AN_OBJECT
            elif byte in (OPEN_BRACE, OPEN_BRACKET):
                if depth >= DEPTH_MAX:
                    status = TOO_DEEP
                else:
                    stack[depth] = byte + 2
                    depth += 1
            elif byte in (CLOSE_BRACE, CLOSE_BRACKET):
                depth -= 1
                if depth < 0 or stack[depth] != byte:
                    status = NOT_AN_OBJECT
                closed = depth == 0
            at += 1
        if status == 0 and not closed:
            status = NOT_AN_OBJECT
        if status != 0:
            bad[row] = status
            continue
        size += stop - begin
        out[size] = NEWLINE
        size += 1
        line_ends[lines + 1] = size
        lines += 1
    return lines
