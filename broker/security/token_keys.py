"""The keys that secrets of delegation tokens are made with: from the configuration, and a file.

To change them without a restart, first append the new key to every broker's file, so that all of
them know it; then, everywhere, put it first; and once the tokens of the old one have ended, take
that out. A file that cannot be used switches tokens off: better none than tokens of a key that an
operator meant to withdraw.
"""

import logging
from pathlib import Path

log = logging.getLogger(__name__)

Keys = tuple[bytes, ...]
"""Newest first; none: there are no delegation tokens."""


class KeyFileError(ValueError):
    """A key file is malformed; the message names it and the line, never a key."""


class TokenKeys:
    """The keys in force at this moment: the file is looked at with every question."""

    def __init__(self, configured: str, file: str) -> None:
        """``configured``: the key in the configuration; ``file``: a file of more; "": none."""
        self._configured: Keys = (configured.encode(),) if configured else ()
        self._path = Path(file) if file else None
        self._seen: object = None
        self._keys: Keys = ()

    def __call__(self) -> Keys:
        if self._path is None:
            return self._configured
        found = _look(self._path)
        if found != self._seen:
            self._seen, self._keys = found, self._read(self._path)
        return self._keys

    def _read(self, path: Path) -> Keys:
        try:
            keys = parse_keys(path.read_bytes())
        except (OSError, KeyFileError) as error:
            log.error("there are no delegation tokens until %s can be used: %s", path, error)
            return ()
        log.info("delegation tokens: %d keys in %s", len(keys), path)
        return keys + tuple(key for key in self._configured if key not in keys)


def _look(path: Path) -> object:
    """By which a changed file is known, or another reason why it cannot be read."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def parse_keys(content: bytes) -> Keys:
    """One key a line; empty lines and those that begin with ``#`` say nothing.

    Raises:
        KeyFileError: not text, no key, or one twice.
    """
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise KeyFileError("it is not UTF-8 text") from error
    keys: list[bytes] = []
    for number, line in enumerate(lines, start=1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if not key.isprintable():
            raise KeyFileError(f"line {number} holds what cannot be printed")
        if key.encode() in keys:
            raise KeyFileError(f"the key of line {number} is there already")
        keys.append(key.encode())
    if not keys:
        raise KeyFileError("it holds no key")
    return tuple(keys)
