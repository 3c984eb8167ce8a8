"""Decodes the keys or values of a task that are in Protobuf."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from ptars import HandlerPool, PtarsConfig
from ptars._lib import MessageHandler

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.conforming import conformed
from quorate.spark.typed.good_values import decode_good, rows_with_values
from quorate.spark.typed.protobuf_format import ProtobufFormat, descriptors
from quorate.spark.typed.protobuf_text import message_at
from quorate.spark.typed.schema_prefix import PREFIX_BYTES, describe
from quorate.spark.typed.schema_registry import registry_of
from quorate.spark.typed.value_formats import Decoded
from quorate.spark.typed.wire_format import read_prefixes, without_prefixes

DEEP_BYTES: Final = 32 << 10
"""The smallest value in which groups may be nested so deeply that ptars would use up the stack.
Such values go through Protobuf's own parser first, which refuses more than 100 levels."""
PATH_MAX: Final = 64
"""The longest path of indexes before a record."""


class ProtobufValues:
    """Decodes the values of one task."""

    def __init__(self, about: ProtobufFormat) -> None:
        self._about = about
        descriptor = about.descriptor()
        self._handler = message_handler(descriptor)
        self._message = message_factory.GetMessageClass(descriptor)
        self._registry = registry_of(about.registry) if about.registry else None
        self._refusals: dict[tuple[int, tuple[int, ...]], str | None] = {}

    def decode(self, values: pa.Array, type_: pa.DataType, *, stop_at_bad: bool) -> Decoded:
        """Decode binary values into a column of the message's type.

        Raises:
            RegistryUnavailable: the schema of a writer could not be asked for.
        """
        refused: dict[int, str] = {}
        flags = rows_with_values(values)
        payloads = values
        if self._registry is not None:
            begins, refused = self._begins(values)
            flags &= begins > 0
            payloads = without_prefixes(values, begins)
        given = np.flatnonzero(flags)
        if len(given) < len(values):
            payloads = payloads.take(pa.array(given))

        def decode(begin: int, end: int) -> pa.Array:
            return self._decoded(payloads.slice(begin, end - begin), type_)

        return decode_good(len(values), given, refused, decode, type_, stop_at_bad=stop_at_bad)

    def _decoded(self, values: pa.Array, type_: pa.DataType) -> pa.Array:
        self._check_deep(values)
        try:
            batch = self._handler.array_to_record_batch(values)
        except BaseException as error:
            # ptars panics over some bytes, and its panic is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise ValueError("its bytes are no message") from None
        return conformed(batch.to_struct_array(), type_)

    def _check_deep(self, values: pa.Array) -> None:
        """Refuse large values that are nested too deeply."""
        ends = np.frombuffer(values.buffers()[1], np.int32)
        sizes = np.diff(ends[values.offset : values.offset + len(values) + 1])
        for row in np.flatnonzero(sizes >= DEEP_BYTES):
            try:
                self._message.FromString(values[row].as_py())
            except DecodeError as error:
                raise ValueError(str(error)) from None

    def _begins(self, values: pa.Array) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
        """Return where the message begins in each value (0: there is none), and what is refused."""
        prefixes = read_prefixes(values)
        begins = np.zeros(len(values), np.int64)
        refused: dict[int, str] = {}
        for row in np.flatnonzero(prefixes.present & ~prefixes.well_formed):
            refused[int(row)] = describe(values[row].as_py())
        ids, first_of_file = prefixes.ids, prefixes.is_first
        for schema_id in np.unique(ids[first_of_file]):
            mine = first_of_file & (ids == schema_id)
            if (reason := self._refusal(int(schema_id), (0,))) is None:
                begins[mine] = PREFIX_BYTES + 1
            else:
                refused |= dict.fromkeys(map(int, np.flatnonzero(mine)), reason)
        for row in np.flatnonzero(prefixes.well_formed & ~first_of_file):
            # Messages that are not the first of their file have a path of indexes.
            begin, path = message_path(values[row].as_py())
            reason = self._refusal(int(ids[row]), path) if begin else "its prefix is malformed"
            if reason is None:
                begins[row] = begin
            else:
                refused[int(row)] = reason
        return begins, refused

    def _refusal(self, schema_id: int, path: tuple[int, ...]) -> str | None:
        """Return why a message of a writer's schema is not the reader's; None if it is."""
        key = schema_id, path
        if key not in self._refusals:
            self._refusals[key] = self._new_refusal(schema_id, path)
        return self._refusals[key]

    def _new_refusal(self, schema_id: int, path: tuple[int, ...]) -> str | None:
        assert self._registry is not None
        try:
            name = message_at(descriptors(self._registry.schema(schema_id)), path)
        except ValueSchemaError as error:
            return f"schema id {schema_id}: {error}"
        if name == self._about.message:
            return None
        return f"schema id {schema_id}: it is the message {name}, not {self._about.message}"


def message_handler(descriptor: Descriptor) -> MessageHandler:
    """Return ptars's handler of a message, with types that Spark has as far as it can."""
    config = PtarsConfig(
        timestamp_unit="us",
        duration_unit="us",
        enum_repr="string",
        list_nullable=True,
        map_nullable=True,
        list_value_nullable=True,
        map_value_nullable=True,
    )
    return HandlerPool([descriptor.file], config).get_for_message(descriptor)


def message_path(value: bytes) -> tuple[int, tuple[int, ...]]:
    """Return where the message begins behind its prefix and its path of indexes, and the path.

    The path is a count and so many indexes, all of them zigzag varints. It begins at 0 if it is
    malformed.
    """
    at, count = PREFIX_BYTES, 1
    numbers: list[int] = []
    while len(numbers) < count:
        number, at = _zigzag(value, at)
        if at == 0:
            return 0, ()
        if not numbers:
            count = 1 + number
            if not 1 <= number <= PATH_MAX:
                return 0, ()
        numbers.append(number)
    return at, tuple(numbers[1:])


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while at < len(value) and shift < 35:
        byte = value[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    return 0, 0
