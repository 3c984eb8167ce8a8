"""The instructions of a decoding program, the table of its columns, and the kernel's declaration.

A program says how a record of one writer's schema is read into the columns of the reader's schema.
An instruction is four numbers: what to do, the column that gets a value, and two operands. Every
instruction that gives a value appends one row to its column. `avro_decoder_kernel` carries programs
out and `avro_resolution` writes them.
"""

from typing import Final

from quorate.spark.kernels.kernel_declaration import KernelArgument, KernelDeclaration

INSTRUCTION_WIDTH: Final = 4

END: Final = 0
"""The record ends here; bytes that follow are an error."""
JUMP: Final = 1
"""Go on at instruction ``a``."""
BRANCH: Final = 2
"""Read the number of a union's branch; go on where constant ``a + 1 + branch`` says. Constant ``a``
is the number of branches."""
FAIL: Final = 3
"""The record cannot be read by the reader's schema."""
NULL: Final = 4
VALID: Final = 5
"""Append a record that is not null to a column of structs."""
INT: Final = 6
LONG: Final = 7
"""Read a long and multiply it by ``a``. If ``b`` is 1, it was written as an int."""
FLOAT: Final = 8
DOUBLE: Final = 9
LONG_AS_FLOAT: Final = 10
LONG_AS_DOUBLE: Final = 11
FLOAT_AS_DOUBLE: Final = 12
BOOLEAN: Final = 13
BYTES: Final = 14
"""Read a length and so many bytes; if ``a`` is 1, they must be UTF-8."""
FIXED: Final = 15
"""Read ``a`` bytes."""
DECIMAL: Final = 16
"""Read ``a`` bytes (-1: a length and so many bytes) as a big-endian number. Its magnitude must be
below the one in constants ``b`` (the upper 64 bits) and ``b + 1``."""
ENUM: Final = 17
"""Read the number of a symbol. Constant ``a`` is how many there are; then come the begin and the
end of each one's text among the texts. A begin of -1 means that the reader does not know it."""
OPEN_LIST: Final = 18
"""Begin the list at depth ``a``."""
NEXT_ITEM: Final = 19
"""Read on to the next item of the list at depth ``a``. After the last item, append the list to the
column (unless it is -1, which skips the list), and go on at instruction ``b``."""
CLOSE_LIST: Final = 20
"""Append the list of the items that were appended since the last list, for a default."""
SKIP_VARINT: Final = 21
SKIP_BYTES: Final = 22
SKIP_FIXED: Final = 23
"""Skip ``a`` bytes."""
CONSTANT: Final = 24
"""Append the bits ``a``, in as many bytes as a value of the column has."""
CONSTANT_BYTES: Final = 25
"""Append the texts' bytes from ``a`` to ``b``."""
CONSTANT_DECIMAL: Final = 26
"""Append the number with the lower bits ``a`` and the upper bits ``b``."""

# --- the table of columns: a row of numbers for each ----------------------------------------------

DATA: Final = 0
"""The place of the values in the arena, in bytes, as are the next two."""
ENDS: Final = 1
VALIDITY: Final = 2
COUNT: Final = 3
"""The rows so far."""
ROWS_MAX: Final = 4
BYTES_MAX: Final = 5
"""The room for the bytes of strings."""
WIDTH: Final = 6
"""The bytes of a value. `VARIABLE` and `NOTHING` are columns of other kinds."""
PARENT: Final = 7
"""The column of lists whose items these are; -1 for a column with a row for each record. It stands
before its items in the table."""
ITEMS: Final = 8
"""The column that counts the items of a column of lists."""
COLUMN_WIDTH: Final = 9

VARIABLE: Final = -1
"""The width of strings and bytes, which have ends and data."""
NOTHING: Final = 0
"""The width of structs, which have nothing but their validity, and of lists, which also have ends.
"""

# --- what a kernel reports ------------------------------------------------------------------------

STATUS: Final = 0
INSTRUCTION: Final = 1
"""The instruction that failed."""
REPORT_SIZE: Final = 2

OK: Final = 0
FULL: Final = 1
"""A column has no more room. The record was not read."""
BAD_ENTRY: Final = 2
PAST_END: Final = 3
BAD_VARINT: Final = 4
BAD_INT: Final = 5
BAD_BOOLEAN: Final = 6
BAD_BRANCH: Final = 7
BAD_SYMBOL: Final = 8
BAD_TEXT: Final = 9
BAD_DECIMAL: Final = 10
BAD_TIME: Final = 11
BAD_COUNT: Final = 12
TRAILING: Final = 13
NOT_RESOLVED: Final = 14
FAULTS: Final = {
    FULL: "its columns need more memory than a record may have",
    PAST_END: "it runs past the end of the record",
    BAD_VARINT: "its number is malformed",
    BAD_INT: "its number is no int of 32 bits",
    BAD_BOOLEAN: "its byte is neither 0 nor 1",
    BAD_BRANCH: "the union has no branch of that number",
    BAD_SYMBOL: "the enum has no symbol of that number, or the reader's schema does not have it",
    BAD_TEXT: "its bytes are no UTF-8",
    BAD_DECIMAL: "its number has more digits than its type",
    BAD_TIME: "its time is out of range",
    BAD_COUNT: "its count of items is malformed",
    TRAILING: "bytes follow the end of the record",
    NOT_RESOLVED: "the reader's schema has no type for this branch of the union",
}

NULL_RECORD: Final = -1
"""The entry of a record without a value: all of its columns are null."""
BAD_RECORD: Final = -2
"""The entry of a record that is known to be bad."""

_BYTES: Final = KernelArgument.BYTES
_INT: Final = KernelArgument.INT
_INT32S: Final = KernelArgument.INT32S
_INT64S: Final = KernelArgument.INT64S

DECODE_AVRO: Final = KernelDeclaration(
    "quorate.spark.typed.avro_decoder_kernel",
    "decode_avro",
    (
        _BYTES, _INT32S, _INT64S, _INT,  # values, their ends, their programs, bytes to leave out
        _INT, _INT,  # first row, behind the last row
        _INT64S, _INT64S, _BYTES,  # instructions, constants, texts
        _BYTES, _INT32S, _INT64S,  # the arena, by bytes, by 4 and by 8 bytes
        KernelArgument.FLOAT32S, KernelArgument.FLOAT64S,  # and as floating point numbers
        _INT64S, _INT,  # columns, how many
        _INT64S,  # items that remain, by depth
        _BYTES, _INT, _INT,  # bad rows, the program of nulls, stop at a bad row
        _INT64S,  # report
    ),
    sources=(__name__, "quorate.spark.kernels.zigzag_varint"),
)  # fmt: skip
EVERY_KERNEL: Final = (DECODE_AVRO,)
