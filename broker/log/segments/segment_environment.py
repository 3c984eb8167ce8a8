"""The LMDB environment of a segment that is written: opens it, and deletes ranges of keys from
it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lmdb

from quorate.broker.log.options import LARGEST_BATCH_BYTES, Flush
from quorate.broker.log.segments.segment_contents import StoredEpoch
from quorate.broker.log.segments.segment_keys import EPOCHS, KEY, epoch_key, epoch_start
from quorate.common.files.lmdb_lock_file import allocate_lock_file
from quorate.common.files.private_files import FILE_MODE

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
        yield StoredEpoch(packed >> 32, packed & 0xFFFF_FFFF, epoch_start(key, value))
