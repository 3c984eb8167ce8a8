"""A run: consecutive entries as one value of the journal's store (P10).

Every call into LMDB releases the interpreter lock and may wait long to get it back, so the entries
of a round are written by one call, not by one for each entry.

A run consists of CRC-32C (u32), number of entries (u32), the term of each (u64), the length of each
(u32), and the commands, one after the other. The checksum covers the index of the first entry as
well.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from crc32c import crc32c

from quorate.quorum.raft.storage.journal import RaftEntry

RUN_BYTES: Final = 1 << 20
"""A run ends with the entry that reaches this size."""

_INDEX = struct.Struct(">Q")
_HEAD = struct.Struct(">II")


class RunCorrupt(ValueError):
    """The value is not what was written; the message says in what way."""


def runs_of(entries: Sequence[RaftEntry]) -> Iterator[Sequence[RaftEntry]]:
    """Cut entries into runs, in order."""
    if entries and sum([len(command) for command, _, _ in entries]) < RUN_BYTES:
        yield entries
        return
    start, size = 0, 0
    for end, (command, _, _) in enumerate(entries, 1):
        size += len(command)
        if size >= RUN_BYTES:
            yield entries[start:end]
            start, size = end, 0
    if start < len(entries):
        yield entries[start:]


def encode_run(entries: Sequence[RaftEntry]) -> bytes:
    commands = [command for command, _, _ in entries]
    terms = [term for _, _, term in entries]
    count = len(entries)
    columns = struct.pack(f">I{count}Q{count}I", count, *terms, *map(len, commands))
    body = b"".join([columns, *commands])
    return crc32c(body, crc32c(_INDEX.pack(entries[0][1]))).to_bytes(4, "big") + body


def decode_run(first_index: int, value: bytes) -> list[RaftEntry]:
    """Return the entries of the run that begins with ``first_index``.

    Raises:
        RunCorrupt: its checksum or its length is wrong.
    """
    if len(value) < _HEAD.size:
        raise RunCorrupt(f"{len(value)} bytes are no entries")
    checksum, count = _HEAD.unpack_from(value)
    if crc32c(memoryview(value)[4:], crc32c(_INDEX.pack(first_index))) != checksum:
        raise RunCorrupt("the checksum is wrong")
    columns = struct.unpack_from(f">{count}Q{count}I", value, _HEAD.size)
    start = _HEAD.size + 12 * count
    entries: list[RaftEntry] = []
    for number, (term, length) in enumerate(zip(columns[:count], columns[count:], strict=True)):
        entries.append((value[start : start + length], first_index + number, term))
        start += length
    return entries
