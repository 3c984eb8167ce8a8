"""Writes the instructions of decoding programs, with their constants and texts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed import avro_instructions as op
from quorate.spark.typed.avro_schema import AvroType
from quorate.spark.typed.avro_shapes import CHOICE, RECORD, Shape

MICROSECONDS_PER_MS: Final = 1000
LONG_BITS: Final = 64
LOW_BITS: Final = (1 << LONG_BITS) - 1


class NotResolved(ValueSchemaError):
    """The reader's schema has no type for the values of the writer's schema."""


class ProgramWriter:
    """The instructions of all programs so far."""

    def __init__(self) -> None:
        self.code: list[tuple[int, int, int, int]] = []
        self.paths: list[str] = []
        """The field that each instruction reads, for messages."""
        self.constant_list: list[int] = []
        self.texts = bytearray()
        self.largest_text = 0
        """The largest text that a program itself brings along, in bytes."""
        self._path: list[str] = []

    @property
    def here(self) -> int:
        """The position of the next instruction."""
        return len(self.code)

    @property
    def path(self) -> str:
        """The field that is looked at."""
        return ".".join(self._path)

    def emit(self, instruction: int, column: int = 0, a: int = 0, b: int = 0) -> int:
        """Append an instruction, and return its position."""
        self.code.append((instruction, column, a, b))
        self.paths.append(self.path)
        return len(self.code) - 1

    def patch(self, at: int, *, a: int | None = None, b: int | None = None) -> None:
        """Change the operands of an instruction."""
        instruction, column, old_a, old_b = self.code[at]
        self.code[at] = (
            instruction, column, old_a if a is None else a, old_b if b is None else b
        )  # fmt: skip

    def forget(self, at: int) -> None:
        """Remove the instructions from a position on."""
        del self.code[at:], self.paths[at:]

    def constants(self, numbers: Sequence[int]) -> int:
        """Append constants, and return the position of the first."""
        self.constant_list.extend(numbers)
        return len(self.constant_list) - len(numbers)

    def text(self, text: bytes) -> tuple[int, int]:
        """Append a text, and return where it begins and ends."""
        self.texts += text
        self.largest_text = max(self.largest_text, len(text))
        return len(self.texts) - len(text), len(self.texts)

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Look at a field of the present record."""
        self._path.append(name)
        try:
            yield
        finally:
            self._path.pop()

    def null(self, shape: Shape) -> None:
        """Append a null to the columns of a type; the items of lists get no row."""
        if shape.column >= 0:
            self.emit(op.NULL, shape.column)
        if shape.kind in (RECORD, CHOICE):
            for child in shape.children:
                self.null(child)


def microseconds_factor(writer: AvroType, reader: AvroType) -> int:
    """Return what to multiply a long by: timestamps are microseconds in Arrow."""
    if "timestamp" not in reader.logical:
        return 1
    unit = writer.logical if "timestamp" in writer.logical else reader.logical
    return MICROSECONDS_PER_MS if unit.endswith("millis") else 1


def signed(bits: int) -> int:
    """Return the number that 64 bits stand for."""
    return bits - (1 << LONG_BITS) if bits >> (LONG_BITS - 1) else bits
