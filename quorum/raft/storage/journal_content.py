"""The content of a journal on disk, whatever stores it: the meta record, and what the rows must be.

The meta record has a checksum, and names the first and the last entry. So a row that is missing, or
that is one too many, is noticed as well as one that was changed.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from quorate.common.files.data_folder import REPLACE
from quorate.quorum.raft.storage.journal import ANY_SNAPSHOT, JournalCorrupt, Meta, RaftEntry
from quorate.quorum.raft.storage.journal_runs import RunCorrupt, decode_run
from quorate.quorum.raft.storage.promises import decode_promises, encode_promises

FORMAT: Final = 5
_WITHOUT_PROMISES: Final = 4
"""The format before voters kept what others promised them. It is rewritten when it is opened."""

_META = struct.Struct(">IHQQQQQ")
_META_LEAST: Final = 6
_MORE: Final = struct.Struct(">QH")
"""The index of the snapshot that is being adopted, and the length of the vote."""


def encode_meta(meta: Meta, last: int, written_by: int) -> bytes:
    fields = (meta.term, meta.first, last, meta.commit_index, written_by)
    vote = (meta.voted_for or "").encode()
    body = b"".join(
        (
            _META.pack(0, FORMAT, *fields)[4:],
            _MORE.pack(meta.adopts, len(vote)),
            vote,
            encode_promises(meta.promises),
        )
    )
    return crc32c(body).to_bytes(4, "big") + body


class StoredMeta(NamedTuple):
    """The meta record as it is on disk."""

    meta: Meta
    last: int
    """The index of the last entry, or 0."""
    written_by: int
    """The LMDB transaction that wrote it."""
    format: int


def decode_meta(path: Path, raw: bytes) -> StoredMeta:
    if len(raw) < _META_LEAST or crc32c(raw[4:]) != int.from_bytes(raw[:4], "big"):
        raise JournalCorrupt(f"journal {path}: checksum of term and vote is wrong. {REPLACE}")
    version = int.from_bytes(raw[4:6], "big")
    if version not in (_WITHOUT_PROMISES, FORMAT):
        raise JournalCorrupt(
            f"journal {path} has format {version}, this version reads {FORMAT}: a newer release "
            "wrote it. Start this voter with that release"
        )
    _, _, term, first, last, commit_index, written_by = _META.unpack_from(raw)
    vote, promises, adopts = raw[_META.size :], {}, ANY_SNAPSHOT
    if version == FORMAT:
        adopts, length = _MORE.unpack_from(vote)
        end = _MORE.size + length
        vote, promises = vote[_MORE.size : end], decode_promises(vote[end:])
    meta = Meta(term, vote.decode() or None, first, commit_index, promises, adopts)
    return StoredMeta(meta, last, written_by, version)


def run_of(path: Path, index: int, value: bytes) -> list[RaftEntry]:
    """Return the entries of the run that is stored under ``index``.

    Raises:
        JournalCorrupt: they are not what was written.
    """
    try:
        return decode_run(index, value)
    except RunCorrupt as error:
        raise JournalCorrupt(
            f"journal {path}: entries from {index} on: {error}. {REPLACE}"
        ) from error


def joined(path: Path, runs: Iterable[list[RaftEntry]], first: int) -> Iterator[RaftEntry]:
    """Yield the entries of successive runs, from entry ``first`` on.

    Raises:
        JournalCorrupt: a run does not follow the one before.
    """
    expected: int | None = None
    for run in runs:
        if expected is not None and expected != run[0][1]:
            raise JournalCorrupt(
                f"journal {path} goes from entry {expected - 1} to {run[0][1]}. {REPLACE}"
            )
        yield from (entry for entry in run if entry[1] >= first)
        expected = run[-1][1] + 1


def check_entries(path: Path, entries: Sequence[RaftEntry], first: int, last: int) -> None:
    """Check that the entries begin and end where the meta record says, and that their terms never
    fall.

    Raises:
        JournalCorrupt: they do not.
    """
    ends = (entries[0][1], entries[-1][1]) if entries else (1, 0)
    if ends != (first, last):
        raise JournalCorrupt(
            f"journal {path} has entries {ends[0]} to {ends[1]}, not {first} to {last}. {REPLACE}"
        )
    terms = [term for _, _, term in entries]
    if terms != sorted(terms):
        raise JournalCorrupt(
            f"journal {path} has entries of a later term before those of an earlier one. {REPLACE}"
        )
