"""The newest offset of each key in a part of a log, in memory of a bounded size.

Keys are kept as cryptographic hashes of 16 bytes. Two keys with the same hash would be taken for
one key. That does not happen by chance, and nobody can construct such a pair.
"""

from hashlib import blake2b
from typing import Final

_HASH_BYTES: Final = 16
BYTES_PER_KEY: Final = 128
"""The memory of one entry: the hash and the offset as objects, and their place in the
dictionary."""
_NONE: Final = -1


class OffsetMap:
    """Newest offsets by key. ``max_bytes`` is ``log.cleaner.dedupe.buffer.size``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_keys = max_bytes // BYTES_PER_KEY
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room_for(self, keys: int) -> bool:
        """Return whether this number of keys can be added.

        An empty map always has room, because otherwise a large batch could never be cleaned. The
        keys of one batch fit into memory.
        """
        return not self._offsets or len(self._offsets) + keys <= self._max_keys

    def put(self, key: bytes, offset: int) -> None:
        """Record that ``key`` is at ``offset``. Offsets must be given in rising order."""
        self._offsets[blake2b(key, digest_size=_HASH_BYTES).digest()] = offset

    def newest(self, key: bytes) -> int:
        """Return the newest offset of ``key``, or -1 if the map lacks the key."""
        return self._offsets.get(blake2b(key, digest_size=_HASH_BYTES).digest(), _NONE)
