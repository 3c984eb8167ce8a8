"""A backup of the quorum in one file: an image, and the cluster that it belongs to.

It has the form of a snapshot file, so every piece is checksummed and a file without its end is
refused (P11). The first piece is a header in JSON. It says that this is a backup, so that neither
is taken for the other, and names the cluster.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from quorate.common.files.private_files import private_files
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.builder import InvalidSnapshot
from quorate.metadata_log.snapshot.snapshot import decode_snapshot, encode_snapshot
from quorate.quorum.quorum_errors import BackupError
from quorate.quorum.raft.storage.snapshot_file import (
    SnapshotCorrupt,
    SnapshotError,
    SnapshotPosition,
    read_chunks,
    read_position,
    write_snapshot,
)

FORMAT: Final = 1


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first piece of a backup."""

    quorum_backup: int = FORMAT
    """The version of this format; the field's name says what the file is."""
    cluster_id: str
    taken_at_ms: int
    """Unix time."""
    source: str
    """The voter's address, or the data folder, from which it was taken. It is for people."""


class Backup(NamedTuple):
    """The contents of a backup."""

    header: BackupHeader
    term: int
    image: Image


def write_backup(path: Path, backup: Backup) -> int:
    """Replace ``path`` by the backup, all or nothing, on disk when this returns; return its size in
    bytes.

    Raises:
        BackupError: it cannot be written.
    """
    position = SnapshotPosition(backup.image.offset, backup.term)

    def pieces() -> "list[bytes]":
        return [msgspec.json.encode(backup.header), *encode_snapshot(backup.image)]

    try:
        with private_files():
            write_snapshot(path, position, pieces())
        return os.stat(path).st_size
    except (OSError, SnapshotError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else error
        raise BackupError(
            f"cannot write {path}: {reason}. Free space, or choose another folder"
        ) from error


def read_backup(path: Path) -> Backup:
    """Return the backup in ``path``, with every checksum checked.

    Raises:
        BackupError: unreadable, damaged, or not a backup that this version reads.
    """
    try:
        position = read_position(path)
        pieces = read_chunks(path)
        header = _header(path, next(pieces, b""))
        image = decode_snapshot(pieces)
    except OSError as error:
        raise BackupError(f"cannot read {path}: {error.strerror}") from error
    except (SnapshotCorrupt, InvalidSnapshot) as error:
        raise BackupError(f"{path} is damaged: {error}. Use another backup") from error
    if image.offset != position.last_index:
        raise BackupError(
            f"{path} is damaged: it holds the state at offset {image.offset}, "
            f"not {position.last_index}. Use another backup"
        )
    return Backup(header, position.last_term, image)


def _header(path: Path, piece: bytes) -> BackupHeader:
    try:
        header = msgspec.json.decode(piece, type=BackupHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupError(
            f"{path} is no backup made by `quorate quorum backup`, but a voter's own snapshot"
        ) from error
    if header.quorum_backup != FORMAT:
        raise BackupError(
            f"{path} is a backup of format {header.quorum_backup}, this version reads {FORMAT}"
        )
    return header
