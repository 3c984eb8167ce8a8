"""Cleaning of one batch: which of its records stay, and what its header says then.

Records that stay keep their offset, timestamp, headers and bytes, and the batch keeps its first and
last offset. The log therefore remains a contiguous sequence of offset ranges, and the sequence
numbers of idempotent producers are still counted from the same base.
"""

import enum
from typing import Final, NamedTuple

from quorate.broker.log.batches.codecs import compress
from quorate.broker.log.batches.control_batches import decode_marker
from quorate.broker.log.batches.empty_batches import emptied
from quorate.broker.log.batches.record_batch import (
    HAS_DELETE_HORIZON,
    NO_SEQUENCE,
    BatchHeader,
    encoded,
)
from quorate.broker.log.batches.records import RecordPlace, plain_records, signed_varint, walk
from quorate.broker.log.compaction.offset_map import OffsetMap
from quorate.broker.log.options import Records


class CleaningOutcome(enum.Enum):
    """The outcome of cleaning one batch."""

    KEPT = "as it is"
    REWRITTEN = "fewer records, or another header"
    DEAD = "no record is left, and nothing else is needed of it"


class CleanedBatch(NamedTuple):
    """The outcome for one batch. ``data`` is the new batch if it was rewritten, else it is
    empty."""

    outcome: CleaningOutcome
    data: bytes = b""


class CleaningTimes(NamedTuple):
    """The time of a cleaning, and how long a tombstone stays after the first cleaning that found
    it."""

    now_ms: int
    delete_retention_ms: int


_KEPT: Final = CleanedBatch(CleaningOutcome.KEPT)
_DEAD: Final = CleanedBatch(CleaningOutcome.DEAD)


def clean_marker(
    header: BatchHeader, batch: Records, times: CleaningTimes, *, is_needed: bool
) -> CleanedBatch:
    """Clean a control batch.

    ``is_needed`` says that records of the transaction that it ends are still in the log, or that it
    is the only source of a producer's epoch. Control batches that do not end a transaction always
    stay, because it is not known what they are needed for.

    Raises:
        UndecodableRecords: The batch does not have the records that its header says.
    """
    if is_needed or (header.record_count and decode_marker(header, batch) is None):
        return _KEPT
    if header.record_count and not header.has_delete_horizon:
        records = plain_records(header, batch)
        survivors = list(walk(records, header.record_count))
        horizon_ms = times.now_ms + times.delete_retention_ms
        return CleanedBatch(
            CleaningOutcome.REWRITTEN, _rewritten(header, records, survivors, horizon_ms)
        )
    is_over = not header.record_count or times.now_ms >= header.base_timestamp
    return _DEAD if is_over else _KEPT


def clean_batch(
    header: BatchHeader,
    batch: Records,
    newest: OffsetMap,
    times: CleaningTimes,
    *,
    is_pinned: bool,
    is_aborted: bool = False,
) -> CleanedBatch:
    """Remove from ``batch`` the records that newer records replace, and expired tombstones.

    ``newest`` has the newest offset of each key, as far as keys were collected. A key that it lacks
    has no newer record. ``is_pinned`` means that a producer may still send this batch again, so its
    header must stay. ``is_aborted`` means that its transaction was aborted, so none of its records
    counts.

    A tombstone (a record without a value) stays until ``delete.retention.ms`` after its first
    cleaning, so that a reader that has seen the key can learn that it was deleted. The header holds
    this delete horizon (KIP-534).

    Raises:
        UndecodableRecords: The producer wrote records that cannot be decoded.
    """
    if not header.record_count:
        return _KEPT if is_pinned else _DEAD
    if is_aborted:
        return CleanedBatch(CleaningOutcome.REWRITTEN, emptied(header)) if is_pinned else _DEAD
    records = plain_records(header, batch)
    survivors, dropped, has_tombstone = _survivors(header, records, newest, times)
    begins_horizon = has_tombstone and not header.has_delete_horizon
    if not dropped and not begins_horizon:
        return _KEPT
    if not survivors:
        return CleanedBatch(CleaningOutcome.REWRITTEN, emptied(header)) if is_pinned else _DEAD
    if not is_pinned and header.producer_id >= 0:
        # The batch will not be sent again, and some of its records are removed, so the rest has no
        # valid sequence any more.
        header = header._replace(base_sequence=NO_SEQUENCE)
    horizon = times.now_ms + times.delete_retention_ms if begins_horizon else None
    return CleanedBatch(CleaningOutcome.REWRITTEN, _rewritten(header, records, survivors, horizon))


def _survivors(
    header: BatchHeader, records: bytes, newest: OffsetMap, times: CleaningTimes
) -> tuple[list[RecordPlace], int, bool]:
    """Return the records that stay, the number of removed records, and whether a tombstone
    stays."""
    survivors: list[RecordPlace] = []
    has_tombstone = False
    base_offset, find = header.base_offset, newest.newest
    tombstones_go = header.has_delete_horizon and times.now_ms >= header.base_timestamp
    for place in walk(records, header.record_count):
        _, _, _, _, offset_delta, key_at, key_length, has_value = place
        if key_length < 0:
            continue
        if find(records[key_at : key_at + key_length]) > base_offset + offset_delta:
            continue
        if not has_value:
            if tombstones_go:
                continue
            has_tombstone = True
        survivors.append(place)
    return survivors, header.record_count - len(survivors), has_tombstone


def _rewritten(
    header: BatchHeader, records: bytes, survivors: list[RecordPlace], horizon_ms: int | None
) -> bytes:
    """Return a batch of ``survivors``. If there is a delete horizon, their timestamps are relative
    to it."""
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(header.base_timestamp + place[3] for place in survivors)
    header = header._replace(record_count=len(survivors), max_timestamp=max_timestamp)
    if horizon_ms is None:
        kept = b"".join([records[place[0] : place[2]] for place in survivors])
    else:
        moved_by = header.base_timestamp - horizon_ms
        kept = b"".join([_moved(records, place, moved_by) for place in survivors])
        header = header._replace(
            base_timestamp=horizon_ms, attributes=header.attributes | HAS_DELETE_HORIZON
        )
    return encoded(header, compress(header.compression, kept))


def _moved(records: bytes, place: RecordPlace, moved_by: int) -> bytes:
    """Return a record whose timestamp is relative to another base. Sums overflow as in Java."""
    _, rest, end, timestamp_delta, *_ = place
    body = signed_varint(_int64(timestamp_delta + moved_by)) + records[rest:end]
    return signed_varint(1 + len(body)) + b"\0" + body


def _int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
