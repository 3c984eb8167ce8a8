"""The rows of the table of a store: their databases, keys and forms."""

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from quorate.broker.log.checkpoints.checked_rows import STORE, RowDamaged
from quorate.broker.log.checkpoints.folder_history import FolderHistory
from quorate.broker.log.checkpoints.partition_row import PartitionRow

PARTITIONS: Final = b"partitions"
RULES: Final = b"voids"
PRODUCERS: Final = b"producers"
SEGMENTS: Final = b"segments"
DATABASES: Final = (PARTITIONS, RULES, PRODUCERS, SEGMENTS, STORE)

NUMBER: Final = struct.Struct(">I")
RULE_KEY: Final = struct.Struct(">IQ")
U64: Final = struct.Struct(">Q")
FOOTER_PLACE: Final = struct.Struct(">QII")
NEXT_NUMBER_KEY: Final = b"next-number"
LAST_SEGMENT_KEY: Final = b"last-segment"
HIGH_WATERMARKS_KEY: Final = b"high-watermarks"
CLEANED_OFFSETS_KEY: Final = b"cleaned-offsets"
RUN_KEY: Final = b"run"
LOSS_KEY: Final = b"loss"
MARK_KEY: Final = b"mark"
HISTORY_KEY: Final = b"history"

_Check = Callable[[bytes, bytes], None]
"""Checks the key and value of a row."""


class StoreRun(msgspec.Struct, frozen=True, array_like=True):
    """The last use of the store: the boot id of the machine, and whether the store was closed."""

    boot_id: str
    closed: bool


class TruncationRule(NamedTuple):
    """A truncation that reaches sealed segments: batches in segments up to ``through_segment_id``
    that begin at or beyond ``offset`` do not exist."""

    through_segment_id: int
    offset: int


def number_in(form: struct.Struct, packed: bytes | None) -> int:
    """Return the number, or 0 if there is none."""
    return 0 if packed is None else int(form.unpack(packed)[0])


def check_row(database: bytes, key: bytes, value: bytes) -> None:
    """Check that this release can read a row.

    Raises:
        RowDamaged: It is no row of this database.
    """
    form = _STORE_FORMS.get(key, _ignore) if database == STORE else _FORMS[database]
    try:
        form(key, value)
    except (msgspec.MsgspecError, struct.error, ValueError) as error:
        name = database.decode()
        raise RowDamaged(f"the row {key.hex()} of {name!r} cannot be read: {error}") from error


def _check_partition(key: bytes, value: bytes) -> None:
    row = msgspec.msgpack.decode(value, type=PartitionRow)
    if key != NUMBER.pack(row.number):
        raise ValueError(f"it is that of partition number {row.number}")


def _check_rule(key: bytes, value: bytes) -> None:
    RULE_KEY.unpack(key)
    U64.unpack(value)


def _check_producers(key: bytes, _: bytes) -> None:
    NUMBER.unpack(key)


def _check_segment(key: bytes, value: bytes) -> None:
    U64.unpack(key)
    if len(value) not in (1, 1 + FOOTER_PLACE.size):
        raise ValueError(f"it has {len(value)} bytes")


def _check_number(_: bytes, value: bytes) -> None:
    NUMBER.unpack(value)


def _check_u64(_: bytes, value: bytes) -> None:
    U64.unpack(value)


def _check_offsets(_: bytes, value: bytes) -> None:
    RULE_KEY.iter_unpack(value)


def _check_run(_: bytes, value: bytes) -> None:
    msgspec.msgpack.decode(value, type=StoreRun)


def _check_history(_: bytes, value: bytes) -> None:
    msgspec.msgpack.decode(value, type=FolderHistory)


def _ignore(_: bytes, __: bytes) -> None:
    """Accept any row."""


_FORMS: Final[Mapping[bytes, _Check]] = {
    PARTITIONS: _check_partition,
    RULES: _check_rule,
    PRODUCERS: _check_producers,
    SEGMENTS: _check_segment,
}
_STORE_FORMS: Final[Mapping[bytes, _Check]] = {
    NEXT_NUMBER_KEY: _check_number,
    LAST_SEGMENT_KEY: _check_u64,
    HIGH_WATERMARKS_KEY: _check_offsets,
    CLEANED_OFFSETS_KEY: _check_offsets,
    RUN_KEY: _check_run,
    MARK_KEY: _check_u64,
    HISTORY_KEY: _check_history,
}
