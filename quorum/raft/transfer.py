"""Handing the leadership to another voter: the leader's side, pure.

The leader takes no new entries, waits until the target has all that there are, and tells it to
stand at once. If that does not come about soon, the leader goes on as before.
"""

from enum import Enum
from typing import Final

from quorum.raft.transport import VoterNode

MAX_LAG: Final = 10_000
"""Entries; a voter that is further behind would keep the clients waiting."""


class TransferRefused(Exception):
    """The leadership cannot be handed over; the message says why."""


class TransferNotYet(TransferRefused):
    """It cannot as things are; that may pass by itself."""


class Step(Enum):
    """What the leader does now."""

    WAIT = 1
    TELL = 2
    GIVE_UP = 3


class Transfer:
    """One attempt, in one term."""

    def __init__(self, target: VoterNode, term: int, now_s: float, patience_s: float) -> None:
        """``patience_s``: for catching up, and once more for the election."""
        self.target = target
        self.term = term
        self.told = False
        self._patience_s = patience_s
        self._deadline_s = now_s + patience_s

    def step(self, now_s: float, match_index: int, last_index: int) -> Step:
        """``match_index``: what the target has of our log, which ends at ``last_index``."""
        if now_s > self._deadline_s:
            return Step.GIVE_UP
        if self.told or match_index < last_index:
            return Step.WAIT
        self.told = True
        self._deadline_s = now_s + self._patience_s
        return Step.TELL
