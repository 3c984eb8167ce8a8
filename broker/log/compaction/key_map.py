"""The newest offset of each key in a stretch of a log, in memory of a bounded size.

Keys are kept as hashes of 16 bytes: two keys with the same one would be taken for one key, which
does not happen by chance, nor can anybody find such two for a cryptographic hash.
"""

from hashlib import blake2b
from typing import Final

_HASH_BYTES: Final = 16
BYTES_PER_KEY: Final = 128
"""What an entry takes: the hash and the offset as objects, and their place in the table."""
_NONE: Final = -1


class KeyMap:
    """Newest offsets by key; ``max_bytes`` as ``log.cleaner.dedupe.buffer.size``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_keys = max_bytes // BYTES_PER_KEY
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room_for(self, keys: int) -> bool:
        """Whether so many more keys fit. Into an empty map any number does, or nothing would ever
        be cleaned; one batch has no more keys than fit into memory."""
        return not self._offsets or len(self._offsets) + keys <= self._max_keys

    def put(self, key: bytes, offset: int) -> None:
        """Offsets are put in rising order."""
        self._offsets[blake2b(key, digest_size=_HASH_BYTES).digest()] = offset

    def newest(self, key: bytes) -> int:
        """The newest offset of ``key``; -1 if there is none."""
        return self._offsets.get(blake2b(key, digest_size=_HASH_BYTES).digest(), _NONE)
