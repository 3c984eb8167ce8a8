"""Cleaning a log in two walks: what is newest of each key, then the whole log without the rest.

The first walk covers what came since the last cleaning, as far as the map of keys has room; the
second one everything up to where the first one ended. So each cleaning leaves a log in which, up to
there, every key is once.
"""

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from broker.log.codecs import UndecodableRecords
from broker.log.compaction.batch_cleaning import CleanedBatch, Times, clean_batch
from broker.log.compaction.key_map import KeyMap
from broker.log.compaction.replacements import Replacement, replacements
from broker.log.options import Records
from broker.log.record_batch import BatchHeader
from broker.log.records import plain_records, walk


class StoredBatch(NamedTuple):
    """A batch of the log as it is."""

    header: BatchHeader
    data: Records


def map_keys(batches: Iterable[StoredBatch], newest: KeyMap, dirty_from: int) -> int:
    """Put the newest offsets of keys into ``newest``; returns the first offset not looked at.

    ``batches``: successive ones, from ``dirty_from`` on, up to where the log may be cleaned.

    Raises:
        UndecodableRecords: a producer wrote what nobody can read.
    """
    beyond = dirty_from
    for header, data in batches:
        if not header.is_control and header.record_count:
            if not newest.has_room_for(header.record_count):
                return beyond
            _map_batch(header, data, newest)
        beyond = header.last_offset + 1
    return beyond


def clean_log(
    batches: Iterable[StoredBatch], newest: KeyMap, times: Times, pinned: Container[int]
) -> Iterator[Replacement]:
    """What changes in ``batches``, which are all of the log up to where ``newest`` knows it.

    ``pinned``: last offsets of batches that their producers may send again.

    Raises:
        UndecodableRecords: a producer wrote what nobody can read.
    """
    return replacements(_cleaned(batches, newest, times, pinned))


def _cleaned(
    batches: Iterable[StoredBatch], newest: KeyMap, times: Times, pinned: Container[int]
) -> Iterator[tuple[BatchHeader, CleanedBatch]]:
    for header, data in batches:
        is_pinned = header.producer_id >= 0 and header.last_offset in pinned
        yield header, clean_batch(header, data, newest, times, is_pinned=is_pinned)


def _map_batch(header: BatchHeader, data: Records, newest: KeyMap) -> None:
    records = plain_records(header, data)
    base_offset, last_delta, put = header.base_offset, header.last_offset_delta, newest.put
    for _, _, _, _, offset_delta, key_at, key_length, _ in walk(records, header.record_count):
        if not 0 <= offset_delta <= last_delta:
            raise UndecodableRecords(f"a record says it lies {offset_delta} behind the first one")
        if key_length >= 0:
            put(records[key_at : key_at + key_length], base_offset + offset_delta)
