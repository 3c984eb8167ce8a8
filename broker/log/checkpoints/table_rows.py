"""The rows of the table of a store: their databases, keys and forms."""

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from quorate.broker.log.checkpoints.checked_rows import STORE, RowDamaged
from quorate.broker.log.checkpoints.folder_history import FolderHistory
from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.segments.segment_contents import FooterPlace

PARTITIONS: Final = b"partitions"
RULES: Final = b"voids"
PRODUCERS: Final = b"producers"
SEGMENTS: Final = b"segments"
DATABASES: Final = (PARTITIONS, RULES, PRODUCERS, SEGMENTS, STORE)

NUMBER: Final = struct.Struct(">I")
RULE_KEY: Final = struct.Struct(">IQ")
U64: Final = struct.Struct(">Q")
FOOTER_PLACE: Final = struct.Struct(">QII")
FOOTER_COMMIT: Final = struct.Struct(">Q")
SEGMENT_COMMIT: Final = struct.Struct(">QQ")
NEXT_NUMBER_KEY: Final = b"next-number"
SEGMENT_COMMITS_KEY: Final = b"segment-commits"
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
    sizes = (1, 1 + FOOTER_PLACE.size, 1 + FOOTER_PLACE.size + FOOTER_COMMIT.size)
    if len(value) not in sizes:
        raise ValueError(f"it has {len(value)} bytes")


def _check_number(_: bytes, value: bytes) -> None:
    NUMBER.unpack(value)


def _check_u64(_: bytes, value: bytes) -> None:
    U64.unpack(value)


def _check_offsets(_: bytes, value: bytes) -> None:
    RULE_KEY.iter_unpack(value)


def _check_commits(_: bytes, value: bytes) -> None:
    SEGMENT_COMMIT.iter_unpack(value)


def packed_segment(place: FooterPlace) -> bytes:
    """Return the row of a sealed segment."""
    position, size, crc, commit = place
    return b"\1" + FOOTER_PLACE.pack(position, size, crc) + FOOTER_COMMIT.pack(commit)


def footer_in(value: bytes) -> FooterPlace | None:
    """Return where the footer of a segment is, or None if the row says nothing of one."""
    if len(value) == 1:
        return None
    commit = number_in(FOOTER_COMMIT, value[1 + FOOTER_PLACE.size :] or None)
    return FooterPlace(*FOOTER_PLACE.unpack_from(value, 1))._replace(commit=commit)


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
    SEGMENT_COMMITS_KEY: _check_commits,
    HIGH_WATERMARKS_KEY: _check_offsets,
    CLEANED_OFFSETS_KEY: _check_offsets,
    RUN_KEY: _check_run,
    MARK_KEY: _check_u64,
    HISTORY_KEY: _check_history,
}
