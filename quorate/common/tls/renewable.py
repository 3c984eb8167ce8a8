"""Certificates that are renewed while the process runs: their files are read again."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from quorate.common.tls.identity import Security, SecurityError

log = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 1.0


class RenewableSecurity:
    """The newest certificates of a process. Use it from any thread.

    When somebody asks, the files are looked at, once a second at most. Files that cannot be used,
    such as half of a pair, are logged, and the last good certificates stay in use.
    """

    def __init__(
        self,
        load: Callable[[], Security],
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it; ``load`` reads the files anew.

        Raises:
            SecurityError: they cannot be used.
        """
        self._load = load
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._current = load()
        self._stamp = self._stamped()
        self._looked_at_s = clock_s()

    @property
    def current(self) -> Security:
        """The newest certificates that could be used; the same object until there are
        newer ones.
        """
        with self._lock:
            now_s = self._clock_s()
            if now_s - self._looked_at_s >= LOOK_INTERVAL_S:
                self._looked_at_s = now_s
                self._look()
            return self._current

    def _look(self) -> None:
        stamp = self._stamped()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._current = self._load()
        except SecurityError as error:
            log.warning("the certificates on disk changed, and the earlier ones stay: %s", error)
        else:
            log.info("the certificates of %s are renewed", self._current.principal)

    def _stamped(self) -> object:
        """Return a value that changes when a file does."""
        return tuple(_stamp_of(path) for path in (self._current.keystore, self._current.truststore))


SecuritySource: TypeAlias = Security | RenewableSecurity
"""Fixed certificates, or those of files that may change."""


def current(source: SecuritySource | None) -> Security | None:
    """Return the certificates for the next connection, or None for plain text."""
    return source.current if isinstance(source, RenewableSecurity) else source


def _stamp_of(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
