"""The promises of other voters to this one: the least that their disks must hold from then on.

A voter's disk that was put back to an earlier time has forgotten votes and acknowledged entries,
and nothing on it shows that. Its peers know what they had from it. They keep the most of it beside
the term and the vote in their journals, and tell it when they connect (``raft.staleness``).
"""

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.common.types import ID_BYTES

_COUNT: Final = struct.Struct(">H")
_PROMISE: Final = struct.Struct(f">I{ID_BYTES}sQQQ?")


class Promise(NamedTuple):
    """The most that one data folder has promised in the newest term in which it promised anything.

    A term on disk never falls, and within a term no acknowledged entry is ever truncated. So a
    folder that has not all of this is older than the promise.
    """

    directory_id: bytes
    term: int
    last_index: int = 0
    """The last entry that it said to have on disk in this term, or 0."""
    last_term: int = 0
    """The term of that entry, which tells it from any other entry of the same index."""
    voted: bool = False
    """Whether it voted in this term for the voter that it promised to."""


Promises = Mapping[int, Promise]
"""The promises to this voter, by the id of the voter that made them."""


def strongest(known: Promise | None, new: Promise) -> Promise:
    """Return the promise that follows from what is known and what was heard now."""
    if known is None or known.directory_id != new.directory_id or known.term < new.term:
        return new
    if known.term > new.term:
        return known
    further = new if new.last_index > known.last_index else known
    if further is known and known.voted >= new.voted:
        return known
    return further._replace(voted=known.voted or new.voted)


def encode_promises(promises: Promises) -> bytes:
    packed = [_PROMISE.pack(voter_id, *promise) for voter_id, promise in promises.items()]
    return b"".join([_COUNT.pack(len(packed)), *packed])


def decode_promises(encoded: bytes) -> dict[int, Promise]:
    """Return the promises that ``encode_promises`` was given.

    Raises:
        ValueError: the length is not that of so many.
    """
    if len(encoded) < _COUNT.size:
        raise ValueError(f"{len(encoded)} bytes are no promises")
    (count,) = _COUNT.unpack_from(encoded)
    if len(encoded) != _COUNT.size + count * _PROMISE.size:
        raise ValueError(f"{len(encoded)} bytes are not {count} promises")
    rows = _PROMISE.iter_unpack(encoded[_COUNT.size :])
    return {row[0]: Promise(*row[1:]) for row in rows}
