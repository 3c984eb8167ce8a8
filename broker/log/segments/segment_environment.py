"""The LMDB environment of a segment that is written: opens it, looks batches up in it, and deletes
ranges of keys from it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import lmdb

from quorate.broker.log.batches.record_batch import check_of
from quorate.broker.log.options import LARGEST_BATCH_BYTES, Flush, Records
from quorate.broker.log.segments.batch_places import CHUNK_BYTES, chunk_count
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.segments.segment_contents import StoredEpoch
from quorate.broker.log.segments.segment_keys import (
    CHECK,
    EPOCHS,
    KEY,
    epoch_key,
    epoch_of,
    epoch_start,
)
from quorate.common.files.lmdb_lock_file import allocate_lock_file
from quorate.common.files.private_files import FILE_MODE

_WRONG_HEADER: Final = "its header is not what was written"

_ROOM_BYTES: Final = 4 * LARGEST_BATCH_BYTES
"""The size of the map beyond the size at which a segment is sealed. The map must never become
full."""


def open_environment(path: Path, flush: Flush, segment_bytes: int) -> lmdb.Environment:
    """Open the LMDB environment of a segment that is written, and create it if there is none."""
    existing_bytes = path.stat().st_size if path.exists() else 0
    allocate_lock_file(path)
    return lmdb.open(
        str(path),
        subdir=False,
        mode=FILE_MODE,
        map_size=max(2 * segment_bytes, existing_bytes) + _ROOM_BYTES,
        readahead=False,
        meminit=False,
        writemap=False,
        sync=flush == "sync",
        metasync=True,
        max_spare_txns=2,
    )


def look_up(
    environment: lmdb.Environment, path: Path, number: int, wanted: Sequence[tuple[int, int]]
) -> list[Records]:
    """Return the chunks of the batches ``wanted`` of a partition, given as (base offset, size).

    One call of LMDB's binding returns all values: a call for each costs more than a small batch.

    Raises:
        DamagedBatch: A batch is missing, or its header is not what was written.
    """
    keys: list[bytes] = []
    for base_offset, size in wanted:
        keys.append(KEY.pack(number, base_offset, 0))
        if size > CHUNK_BYTES:
            keys += [KEY.pack(number, base_offset, chunk) for chunk in range(1, chunk_count(size))]
        keys.append(KEY.pack(number, base_offset, CHECK))
    try:
        with environment.begin() as transaction, transaction.cursor() as cursor:
            found = cursor.getmulti(keys)
    except lmdb.Error as error:
        raise DamagedBatch(path, number, wanted[0][0], str(error)) from error
    if len(found) < len(keys):
        raise _missing(path, keys, dict(found))
    chunks: list[Records] = []
    place = 0
    for base_offset, size in wanted:
        start = found[place][1]
        chunks.append(start)
        if size > CHUNK_BYTES:
            others = range(place + 1, place + chunk_count(size))
            chunks += [found[other][1] for other in others]
            place = others.stop - 1
        key, check = found[place + 1]
        if check != check_of(key, start):
            raise DamagedBatch(path, number, base_offset, _WRONG_HEADER)
        place += 2
    return chunks


def _missing(path: Path, keys: Sequence[bytes], found: Mapping[bytes, bytes]) -> DamagedBatch:
    """Return the damage of the first batch that lacks a value."""
    number, base_offset, chunk = KEY.unpack(next(key for key in keys if key not in found))
    return DamagedBatch(
        path, number, base_offset, _WRONG_HEADER if chunk == CHECK else "it is not there"
    )


def delete_range(cursor: "lmdb.Cursor[bytes]", first: bytes, prefix: bytes) -> None:
    """Delete every key from ``first`` on that begins with ``prefix``."""
    found = cursor.set_range(first)
    while found and cursor.key().startswith(prefix):
        found = cursor.delete() and bool(cursor.key())


def epochs_of(cursor: "lmdb.Cursor[bytes]", number: int) -> Iterator[StoredEpoch]:
    """Yield the starts of a partition's epochs that the segment holds."""
    for epoch in _epochs_from(cursor, epoch_key(number, 0)):
        if epoch.number != number:
            return
        yield epoch


def _epochs_from(cursor: "lmdb.Cursor[bytes]", first: bytes) -> Iterator[StoredEpoch]:
    if not cursor.set_range(first):
        return
    for key, value in cursor.iternext():
        kind, packed, _ = KEY.unpack(key)
        if kind != EPOCHS:
            return
        yield StoredEpoch(*epoch_of(packed), epoch_start(key, value))
