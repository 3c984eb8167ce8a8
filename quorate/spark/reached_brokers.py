"""Remembers which brokers this process has found, and which of them did not answer it lately.

A Python worker of Spark runs one task after another, each with a client of its own. What one task
had to wait for, the next one need not find out again.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from quorate.client.security import Securities

Bootstrap = tuple[str, Securities]
"""The bootstrap servers of a client, and its security. A client with another user or password looks
for brokers by itself, and is told by them what is wrong."""

SILENT_SECONDS: Final = 30.0
"""The time for which a broker that did not answer is passed over if another one can do the same."""


class ReachedBrokers:
    """The gRPC addresses behind bootstrap servers, and those that cannot be reached for now."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._found: dict[Bootstrap, tuple[str, ...]] = {}
        self._silent_until_s: dict[str, float] = {}

    def found_behind(self, bootstrap: Bootstrap) -> list[str]:
        """Return the addresses that were found last, the one to ask first at the front."""
        return list(self._found.get(bootstrap, ()))

    def note_found(self, bootstrap: Bootstrap, addresses: Sequence[str]) -> None:
        """Remember addresses for the next client; none: it has to look for brokers again."""
        self._found[bootstrap] = tuple(addresses)

    def note_silent(self, address: str) -> None:
        """Remember that a broker did not answer."""
        self._silent_until_s[address] = self._now_s() + SILENT_SECONDS

    def is_silent(self, address: str) -> bool:
        """Return True if a broker did not answer lately."""
        return self._now_s() < self._silent_until_s.get(address, 0.0)

    def silent_last(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses in their order, but the silent ones behind the others."""
        return sorted(addresses, key=self.is_silent)


OF_THIS_PROCESS: Final = ReachedBrokers()
