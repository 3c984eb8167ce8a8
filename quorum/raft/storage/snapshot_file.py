"""A snapshot on disk: index and term of the last entry in it, then the state, all checksummed.

``magic | index u64 | term u64 | CRC-32C of these``, then pieces ``length u32 | CRC-32C u32 |
bytes``, then a piece of length 0 whose checksum field counts the pieces. A file without its end is
refused (P11). Files are written aside, synced, renamed, and the folder is synced, before anyone
relies on them.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from crc32c import crc32c

from quorate.common.files.data_folder import REPLACE
from quorate.common.files.durable_files import sync_folder

MAGIC: Final = b"QRTSNAP\x01"
_POSITION = struct.Struct(">QQ")
_PIECE = struct.Struct(">II")
_HEAD_BYTES: Final = len(MAGIC) + _POSITION.size + 4


class SnapshotError(RuntimeError):
    """A snapshot cannot be read or written; the voter must not go on."""


class SnapshotCorrupt(SnapshotError):
    """A snapshot file is not what was written."""


class SnapshotPosition(NamedTuple):
    """The position of a snapshot: it is the state after the entry of this index and term."""

    last_index: int
    last_term: int


def write_snapshot(path: Path, position: SnapshotPosition, chunks: Iterable[bytes]) -> None:
    """Replace ``path`` by a snapshot; durable when this returns.

    Raises:
        SnapshotError: the disk is full or failed; the older snapshot is still there.
    """
    scratch = path.with_name(f"{path.name}.writing")
    with naming_errors("write", scratch), scratch.open("wb") as file:
        head = MAGIC + _POSITION.pack(*position)
        file.write(head + crc32c(head).to_bytes(4, "big"))
        count = 0
        for chunk in chunks:
            count += 1
            file.write(_PIECE.pack(len(chunk), crc32c(chunk)))
            file.write(chunk)
        file.write(_PIECE.pack(0, count))
        _make_durable(file)
    adopt_snapshot(scratch, path)


def sync_file(path: Path) -> None:
    """Have the content of the file ``path`` on disk on return; its name may not be durable."""
    with naming_errors("write", path), path.open("rb") as file:
        os.fsync(file.fileno())


def adopt_snapshot(scratch: Path, path: Path) -> None:
    """Give a synced file its name; durable when this returns.

    Raises:
        SnapshotError: the disk failed.
    """
    with naming_errors("write", path):
        scratch.replace(path)
        sync_folder(path.parent)


def read_position(path: Path) -> SnapshotPosition:
    """Return the position of the snapshot.

    Raises:
        SnapshotCorrupt: not a snapshot of this format.
    """
    with path.open("rb") as file:
        return read_head(path, file)


def read_chunks(path: Path) -> Iterator[bytes]:
    """Yield the chunks that were written, each checked; nothing is left out.

    Raises:
        SnapshotCorrupt: truncated, or a checksum is wrong. Chunks given out before are void then.
    """
    with path.open("rb") as file:
        read_head(path, file)
        size = path.stat().st_size
        count = 0
        while True:
            length, check = _PIECE.unpack(_read_exactly(path, file, _PIECE.size))
            if length == 0:
                break
            if length > size - file.tell():
                raise SnapshotCorrupt(f"snapshot {path} is truncated or damaged. {REPLACE}")
            chunk = _read_exactly(path, file, length)
            if crc32c(chunk) != check:
                raise SnapshotCorrupt(
                    f"snapshot {path}: checksum of piece {count} is wrong. {REPLACE}"
                )
            count += 1
            yield chunk
        if check != count or file.read(1):
            raise SnapshotCorrupt(
                f"snapshot {path}: {count} pieces, not the {check} written. {REPLACE}"
            )


def read_head(path: Path, file: BinaryIO) -> SnapshotPosition:
    """Return the position of an open file, as ``read_position``, and leave the file
    after the head.
    """
    head = _read_exactly(path, file, _HEAD_BYTES)
    if not head.startswith(MAGIC):
        raise SnapshotCorrupt(
            f"{path} is not a snapshot of a format this version reads. If a newer release wrote "
            f"it, start this voter with that release. If it is damaged: {REPLACE}"
        )
    if crc32c(head[:-4]) != int.from_bytes(head[-4:], "big"):
        raise SnapshotCorrupt(f"snapshot {path}: checksum of its head is wrong. {REPLACE}")
    return SnapshotPosition(*_POSITION.unpack_from(head, len(MAGIC)))


def _read_exactly(path: Path, file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise SnapshotCorrupt(f"snapshot {path} is truncated or damaged. {REPLACE}")
    return data


@contextmanager
def naming_errors(what: str, path: Path) -> Iterator[None]:
    """Name the file and the remedy in errors of the system, which say neither."""
    try:
        yield
    except OSError as error:
        raise SnapshotError(
            f"cannot {what} snapshot {path}: {error.strerror or error}. Free space or repair the "
            "disk, then start this voter again: what it acknowledged is in its journal"
        ) from error


def _make_durable(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


class IncomingSnapshot:
    """A snapshot file arriving piece by piece from the leader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def take(self, data: bytes, is_first: bool, is_last: bool) -> bool:
        """Write one piece; True when the file is complete (but neither synced nor checked).

        A piece without its beginning is ignored: the sender starts again.

        Raises:
            SnapshotError: the disk is full or failed.
        """
        with naming_errors("write", self.path):
            if is_first:
                self.discard()
                self._file = self.path.open("wb")
            if self._file is None:
                return False
            self._file.write(data)
            if not is_last:
                return False
            self._file.close()
            self._file = None
            return True

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self.path.unlink(missing_ok=True)
