"""The compiled part of decoding Avro: it carries out programs over records into Arrow's buffers.

Any client may have written the records, so nothing is read behind a record's end, every count is
bounded by the bytes that follow, and every write is checked against the room of its column. A
record that does not fit its program is taken back: its columns get a null instead, and the row is
marked. No loop runs without consuming bytes or room.

Arrays are bare pointers here (`quorate.spark.kernels`). The arena is passed once for each size of
number; the places in it are multiples of 64 bytes.
"""

import numpy as np

from quorate.spark.kernels.kernel_compiler import (
    BYTES as BYTE_POINTER,
)
from quorate.spark.kernels.kernel_compiler import (
    INT as INT_TYPE,
)
from quorate.spark.kernels.kernel_compiler import (
    INT32S,
    INT64S,
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    Integer,
    UInt8s,
    copy_bytes,
    kernel,
    kernel_part,
)
from quorate.spark.kernels.zigzag_varint import zigzag_varint
from quorate.spark.typed.avro_instructions import (
    BAD_BOOLEAN,
    BAD_BRANCH,
    BAD_COUNT,
    BAD_DECIMAL,
    BAD_ENTRY,
    BAD_INT,
    BAD_RECORD,
    BAD_SYMBOL,
    BAD_TEXT,
    BAD_TIME,
    BAD_VARINT,
    BOOLEAN,
    BRANCH,
    BYTES,
    BYTES_MAX,
    CLOSE_LIST,
    COLUMN_WIDTH,
    CONSTANT,
    CONSTANT_BYTES,
    CONSTANT_DECIMAL,
    COUNT,
    DATA,
    DECIMAL,
    DECODE_AVRO,
    DOUBLE,
    END,
    ENDS,
    ENUM,
    FAIL,
    FIXED,
    FLOAT,
    FLOAT_AS_DOUBLE,
    FULL,
    INSTRUCTION,
    INSTRUCTION_WIDTH,
    INT,
    ITEMS,
    JUMP,
    LONG,
    LONG_AS_DOUBLE,
    LONG_AS_FLOAT,
    NEXT_ITEM,
    NOT_RESOLVED,
    NULL,
    NULL_RECORD,
    OK,
    OPEN_LIST,
    PARENT,
    PAST_END,
    ROWS_MAX,
    SKIP_BYTES,
    SKIP_FIXED,
    SKIP_VARINT,
    STATUS,
    TRAILING,
    VALID,
    VALIDITY,
    WIDTH,
)

INT_MIN = -(1 << 31)
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
SIGN = -(1 << 63)


@kernel_part(INT_TYPE(BYTE_POINTER, INT_TYPE, INT_TYPE))
def _is_utf8(data: UInt8s, at: Integer, end: Integer) -> Integer:  # noqa: C901
    """Return 1 if data[at:end] is UTF-8."""
    high = np.int64(0)
    for index in range(at, end):
        high |= np.int64(data[index])
    if high < 0x80:
        return np.int64(1)
    while at < end:
        first = np.int64(data[at])
        if first < 0x80:
            at += 1
            continue
        if 0xC2 <= first <= 0xDF:
            more, low, top = 1, 0x80, 0xBF
        elif 0xE0 <= first <= 0xEF:
            more, low, top = 2, 0x80, 0xBF
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                top = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more, low, top = 3, 0x80, 0xBF
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                top = 0x8F
        else:
            return np.int64(0)
        if end - at <= more or not low <= np.int64(data[at + 1]) <= top:
            return np.int64(0)
        for index in range(at + 2, at + 1 + more):
            if np.int64(data[index]) & 0xC0 != 0x80:
                return np.int64(0)
        at += 1 + more
    return np.int64(1)


@kernel_part(INT_TYPE(BYTE_POINTER, INT_TYPE, INT_TYPE))
def _bits(data: UInt8s, at: Integer, size: Integer) -> Integer:
    """Return the little-endian number in data[at:at + size]."""
    number = np.int64(0)
    for index in range(size):
        number |= np.int64(data[at + index]) << (8 * index)
    return number


@kernel_part(
    INT_TYPE(BYTE_POINTER, INT_TYPE, INT_TYPE, INT_TYPE, INT_TYPE, BYTE_POINTER, INT64S, INT_TYPE)
)
def _put_decimal(
    data: UInt8s, at: Integer, size: Integer, bound_high: Integer, bound_low: Integer,
    arena: UInt8s, longs: Int64s, place: Integer,
) -> Integer:  # fmt: skip
    """Write the big-endian number data[at:at + size] as 128 bits; return 0 if it is too large."""
    if size == 0:
        return np.int64(0)
    fill = np.int64(-1) if data[at] & 0x80 else np.int64(0)
    while size > 16:
        if np.int64(data[at]) != fill & 0xFF:
            return np.int64(0)
        at += 1
        size -= 1
    high = fill
    low = fill
    for index in range(size):
        high = high << 8 | (low >> 56) & 0xFF
        low = low << 8 | np.int64(data[at + index])
    if high == SIGN or (high < 0) != (fill < 0):
        # The negative of the least number has no place in 128 bits. It is out of every bound.
        return np.int64(0)
    longs[place] = low
    longs[place + 1] = high
    if high < 0:
        low = -low
        high = ~high + (np.int64(1) if low == 0 else np.int64(0))
    below = high < bound_high or (high == bound_high and (low ^ SIGN) < (bound_low ^ SIGN))
    return np.int64(1) if below else np.int64(0)


@kernel_part(INT_TYPE(BYTE_POINTER, INT32S, INT64S, INT_TYPE))
def _append_null(arena: UInt8s, ints: Int32s, table: Int64s, column: Integer) -> Integer:
    """Append a null to a column; return 0 if there is no room."""
    count = table[column + COUNT]
    if count >= table[column + ROWS_MAX]:
        return np.int64(0)
    width = table[column + WIDTH]
    if table[column + ENDS] >= 0:
        ends = (table[column + ENDS] >> 2) + count
        ints[ends + 1] = ints[ends]
    for index in range(width):
        arena[table[column + DATA] + count * width + index] = 0
    arena[table[column + VALIDITY] + count] = 0
    table[column + COUNT] = count + 1
    return np.int64(1)


@kernel_part(INT_TYPE(INT32S, INT64S, INT_TYPE, INT_TYPE))
def _take_back(ints: Int32s, table: Int64s, columns: Integer, row: Integer) -> Integer:
    """Remove what was appended behind the first ``row`` records."""
    for index in range(columns):
        column = index * COLUMN_WIDTH
        parent = table[column + PARENT]
        if parent < 0:
            table[column + COUNT] = row
        else:
            # The column of lists stands before its items, so it is right already.
            owner = parent * COLUMN_WIDTH
            table[column + COUNT] = ints[(table[owner + ENDS] >> 2) + table[owner + COUNT]]
    return np.int64(0)


@kernel(DECODE_AVRO)
def decode_avro(  # noqa: C901
    values: UInt8s, ends: Int32s, entries: Int64s, prefix: Integer,
    row: Integer, rows: Integer,
    code: Int64s, constants: Int64s, texts: UInt8s,
    arena: UInt8s, ints: Int32s, longs: Int64s, floats: Float32s, doubles: Float64s,
    table: Int64s, columns: Integer,
    remaining: Int64s,
    bad: UInt8s, nulls: Integer, stop_at_bad: Integer,
    report: Int64s,
) -> int:  # fmt: skip
    """Read the records from ``row`` on, up to ``rows``, as their programs say.

    This is one long function because each instruction changes the state of the loop.

    Returns:
        The position of the first record that was not read: ``rows``, or one that found a column
        full, or a bad one if it is to stop there. The report says which.
    """
    first = row
    report[STATUS] = OK
    for index in range(columns):
        place = table[index * COLUMN_WIDTH + ENDS]
        if place >= 0:
            ints[place >> 2] = 0
    while row < rows:
        stop = np.int64(ends[row + 1])
        pc = entries[row]
        number: Integer = np.int64(0)
        size: Integer = np.int64(0)
        at: Integer = np.int64(ends[row]) + prefix
        status = np.int64(OK)
        if pc == NULL_RECORD:
            pc, at = nulls, stop
        elif pc == BAD_RECORD:
            status = np.int64(BAD_ENTRY)
        while status == OK:
            cell = pc * INSTRUCTION_WIDTH
            op = code[cell]
            column = code[cell + 1] * COLUMN_WIDTH
            a = code[cell + 2]
            b = code[cell + 3]
            pc += 1

            # Instructions that append nothing.
            if op == END:
                if at != stop:
                    status = np.int64(TRAILING)
                break
            if op == JUMP:
                pc = a
                continue
            if op == BRANCH:
                number, at = zigzag_varint(values, at, stop)
                if at < 0:
                    status = np.int64(BAD_VARINT)
                elif not 0 <= number < constants[a]:
                    status = np.int64(BAD_BRANCH)
                else:
                    pc = constants[a + 1 + number]
                continue
            if op == OPEN_LIST:
                remaining[a] = 0
                continue
            if op == SKIP_VARINT:
                number, at = zigzag_varint(values, at, stop)
                if at < 0:
                    status = np.int64(BAD_VARINT)
                continue
            if op in (SKIP_BYTES, SKIP_FIXED):
                size = a
                if op == SKIP_BYTES:
                    size, at = zigzag_varint(values, at, stop)
                    if at < 0:
                        status = np.int64(BAD_VARINT)
                        continue
                if not 0 <= size <= stop - at:
                    status = np.int64(PAST_END)
                at += size
                continue
            if op == FAIL:
                status = np.int64(NOT_RESOLVED)
                continue
            if op == NEXT_ITEM:
                if remaining[a] == 0:
                    number, at = zigzag_varint(values, at, stop)
                    if at >= 0 and number < 0:
                        # The size of the block in bytes follows a negative count. The least number
                        # has no negative, and no count is so large.
                        number = -max(number, -LONG_MAX)
                        size, at = zigzag_varint(values, at, stop)
                        if at >= 0 and size < 0:
                            at = np.int64(-1)
                    if at < 0:
                        status = np.int64(BAD_VARINT)
                        continue
                    # Each item has a byte at least.
                    if number > stop - at:
                        status = np.int64(BAD_COUNT)
                        continue
                    remaining[a] = number
                if remaining[a] != 0:
                    remaining[a] -= 1
                    continue
                pc = b
                if column < 0:
                    continue
            if op == NULL:
                if not _append_null(arena, ints, table, column):
                    status = np.int64(FULL)
                continue

            # Instructions that append a value.
            count = table[column + COUNT]
            if count >= table[column + ROWS_MAX]:
                status = np.int64(FULL)
                continue
            data = table[column + DATA]
            width = table[column + WIDTH]
            if op in (LONG, INT):
                number, at = zigzag_varint(values, at, stop)
                if at < 0:
                    status = np.int64(BAD_VARINT)
                elif (op == INT or b == 1) and not INT_MIN <= number <= INT_MAX:
                    status = np.int64(BAD_INT)
                elif op == INT:
                    ints[(data >> 2) + count] = number
                elif a != 1 and not -(LONG_MAX // a) <= number <= LONG_MAX // a:
                    status = np.int64(BAD_TIME)
                else:
                    longs[(data >> 3) + count] = number * a
            elif op in (BYTES, FIXED):
                size = a
                if op == BYTES:
                    size, at = zigzag_varint(values, at, stop)
                used = np.int64(ints[(table[column + ENDS] >> 2) + count])
                if at < 0:
                    status = np.int64(BAD_VARINT)
                elif not 0 <= size <= stop - at:
                    status = np.int64(PAST_END)
                elif size > table[column + BYTES_MAX] - used:
                    status = np.int64(FULL)
                elif op == BYTES and a == 1 and not _is_utf8(values, at, at + size):
                    status = np.int64(BAD_TEXT)
                else:
                    copy_bytes(arena, data + used, values, at, size)
                    ints[(table[column + ENDS] >> 2) + count + 1] = used + size
                    at += size
            elif op in (DOUBLE, FLOAT):
                if width > stop - at:
                    status = np.int64(PAST_END)
                else:
                    copy_bytes(arena, data + count * width, values, at, width)
                    at += width
            elif op == BOOLEAN:
                if at >= stop:
                    status = np.int64(PAST_END)
                elif values[at] > 1:
                    status = np.int64(BAD_BOOLEAN)
                else:
                    arena[data + count] = values[at]
                    at += 1
            elif op == ENUM:
                number, at = zigzag_varint(values, at, stop)
                used = np.int64(ints[(table[column + ENDS] >> 2) + count])
                if at < 0:
                    status = np.int64(BAD_VARINT)
                elif not 0 <= number < constants[a] or constants[a + 1 + 2 * number] < 0:
                    status = np.int64(BAD_SYMBOL)
                else:
                    begin = constants[a + 1 + 2 * number]
                    size = constants[a + 2 + 2 * number] - begin
                    if size > table[column + BYTES_MAX] - used:
                        status = np.int64(FULL)
                    else:
                        copy_bytes(arena, data + used, texts, begin, size)
                        ints[(table[column + ENDS] >> 2) + count + 1] = used + size
            elif op == DECIMAL:
                size = a
                if size < 0:
                    size, at = zigzag_varint(values, at, stop)
                if at < 0:
                    status = np.int64(BAD_VARINT)
                elif not 0 <= size <= stop - at:
                    status = np.int64(PAST_END)
                elif not _put_decimal(
                    values, at, size, constants[b], constants[b + 1],
                    arena, longs, (data >> 3) + 2 * count,
                ):  # fmt: skip
                    status = np.int64(BAD_DECIMAL)
                else:
                    at += size
            elif op in (LONG_AS_DOUBLE, LONG_AS_FLOAT):
                number, at = zigzag_varint(values, at, stop)
                if at < 0:
                    status = np.int64(BAD_VARINT)
                elif op == LONG_AS_DOUBLE:
                    doubles[(data >> 3) + count] = np.float64(number)
                else:
                    floats[(data >> 2) + count] = np.float32(number)
            elif op == FLOAT_AS_DOUBLE:
                if stop - at < 4:
                    status = np.int64(PAST_END)
                else:
                    ints[(data >> 2) + 2 * count] = _bits(values, at, 4)
                    doubles[(data >> 3) + count] = np.float64(floats[(data >> 2) + 2 * count])
                    at += 4
            elif op == CONSTANT:
                for index in range(width):
                    arena[data + count * width + index] = (a >> (8 * index)) & 0xFF
            elif op == CONSTANT_DECIMAL:
                longs[(data >> 3) + 2 * count] = a
                longs[(data >> 3) + 2 * count + 1] = b
            elif op == CONSTANT_BYTES:
                used = np.int64(ints[(table[column + ENDS] >> 2) + count])
                if b - a > table[column + BYTES_MAX] - used:
                    status = np.int64(FULL)
                else:
                    copy_bytes(arena, data + used, texts, a, b - a)
                    ints[(table[column + ENDS] >> 2) + count + 1] = used + b - a
            elif op in (CLOSE_LIST, NEXT_ITEM):
                items = table[column + ITEMS] * COLUMN_WIDTH
                ints[(table[column + ENDS] >> 2) + count + 1] = table[items + COUNT]
            elif op != VALID:
                status = np.int64(BAD_ENTRY)
            if status == OK:
                arena[table[column + VALIDITY] + count] = 1
                table[column + COUNT] = count + 1

        if status == OK:
            row += 1
            continue
        _take_back(ints, table, columns, row - first)
        report[STATUS] = status
        report[INSTRUCTION] = pc - 1
        if status == FULL or stop_at_bad:
            return int(row)
        report[STATUS] = OK
        bad[row] = status
        entries[row] = NULL_RECORD
    return int(row)
