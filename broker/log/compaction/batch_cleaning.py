"""What cleaning leaves of one batch.

Records that stay keep offset, timestamp, headers and bytes, and the batch keeps its ends: a log
stays a contiguous sequence of offset spans, and sequences of idempotent producers go on to be
counted from the same base.
"""

import enum
from typing import Final, NamedTuple

from broker.log.codecs import compress
from broker.log.compaction.key_map import KeyMap
from broker.log.control_batches import decode_marker
from broker.log.empty_batches import emptied
from broker.log.options import Records
from broker.log.record_batch import (
    HAS_DELETE_HORIZON,
    NO_SEQUENCE,
    BatchHeader,
    encoded,
)
from broker.log.records import RecordPlace, plain_records, signed_varint, walk


class Outcome(enum.Enum):
    """What becomes of a batch."""

    KEPT = "as it is"
    REWRITTEN = "fewer records, or another header"
    DEAD = "no record is left, and nothing else is needed of it"


class CleanedBatch(NamedTuple):
    """``data``: the new batch if it was rewritten, else nothing."""

    outcome: Outcome
    data: bytes = b""


class Times(NamedTuple):
    """When a cleaning happens, and how long a tombstone outlives the first one that meets it."""

    now_ms: int
    delete_retention_ms: int


_KEPT: Final = CleanedBatch(Outcome.KEPT)
_DEAD: Final = CleanedBatch(Outcome.DEAD)


def clean_marker(
    header: BatchHeader, batch: Records, times: Times, *, is_needed: bool
) -> CleanedBatch:
    """A control batch; ``is_needed``: what it ends is still there, or it says a producer's epoch.

    Of other kinds than the ends of transactions it is not known what they are needed for.

    Raises:
        UndecodableRecords: it has not the records that it says it has.
    """
    if is_needed or (header.record_count and decode_marker(header, batch) is None):
        return _KEPT
    if header.record_count and not header.has_delete_horizon:
        records = plain_records(header, batch)
        survivors = list(walk(records, header.record_count))
        horizon_ms = times.now_ms + times.delete_retention_ms
        return CleanedBatch(Outcome.REWRITTEN, _rewritten(header, records, survivors, horizon_ms))
    is_over = not header.record_count or times.now_ms >= header.base_timestamp
    return _DEAD if is_over else _KEPT


def clean_batch(
    header: BatchHeader,
    batch: Records,
    newest: KeyMap,
    times: Times,
    *,
    is_pinned: bool,
    is_aborted: bool = False,
) -> CleanedBatch:
    """``batch`` without the records that newer ones took the place of, or whose time has come.

    ``newest``: of each key the newest offset, as far as it was looked for; a key that is not there
    has nothing newer than what is here. ``is_pinned``: a producer may still send this batch again,
    so that its header must stay. ``is_aborted``: none of its records counts.

    A tombstone (a record without a value) stays until ``delete.retention.ms`` after its first
    cleaning, so that a reader that had seen the key can learn that it is gone; the header says
    until when (KIP-534).

    Raises:
        UndecodableRecords: the producer wrote what nobody can read.
    """
    if not header.record_count:
        return _KEPT if is_pinned else _DEAD
    if is_aborted:
        return CleanedBatch(Outcome.REWRITTEN, emptied(header)) if is_pinned else _DEAD
    records = plain_records(header, batch)
    survivors, dropped, has_tombstone = _survivors(header, records, newest, times)
    begins_horizon = has_tombstone and not header.has_delete_horizon
    if not dropped and not begins_horizon:
        return _KEPT
    if not survivors:
        return CleanedBatch(Outcome.REWRITTEN, emptied(header)) if is_pinned else _DEAD
    if not is_pinned and header.producer_id >= 0:
        # Of batches that nobody sends again some are lost: the rest tells no sequence any more.
        header = header._replace(base_sequence=NO_SEQUENCE)
    horizon = times.now_ms + times.delete_retention_ms if begins_horizon else None
    return CleanedBatch(Outcome.REWRITTEN, _rewritten(header, records, survivors, horizon))


def _survivors(
    header: BatchHeader, records: bytes, newest: KeyMap, times: Times
) -> tuple[list[RecordPlace], int, bool]:
    """The records that stay, how many do not, and whether a tombstone is among those that stay."""
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
    """A batch of ``survivors``; with a horizon, their times count from it."""
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
    """A record whose timestamp is told from another base; sums wrap as Java's do."""
    _, rest, end, timestamp_delta, *_ = place
    body = signed_varint(_int64(timestamp_delta + moved_by)) + records[rest:end]
    return signed_varint(1 + len(body)) + b"\0" + body


def _int64(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
