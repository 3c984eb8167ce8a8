"""When a client doubts that its leader still leads, though the connection stands.

A process that is stopped, or behind a cut link, closes nothing: only its silence shows. Silence
alone is no reason to leave, for a busy leader is silent as well; a later term with another leader
is. So a client that waits for an answer asks the other voters, who are not busy with it.
"""

from collections.abc import Callable
from typing import Final

DOUBT_AFTER_S: Final = 0.25
"""Less than an election takes, so the answer is there when the new leader is."""

DOUBT_EVERY_S: Final = 0.1


class OwedAnswer:
    """For how long a leader has owed an answer without giving any."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._since_s: float | None = None

    def asked(self) -> None:
        """Something was sent that will be answered."""
        if self._since_s is None:
            self._since_s = self._clock_s()

    def heard(self, *, owes_more: bool) -> None:
        """Some answer came; others may still be due."""
        self._since_s = self._clock_s() if owes_more else None

    @property
    def is_in_doubt(self) -> bool:
        return self._since_s is not None and self._clock_s() - self._since_s >= DOUBT_AFTER_S
