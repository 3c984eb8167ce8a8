"""The leader's lease and the leadership transfer: pure bookkeeping of one leadership.

The lease says since when a leader can have been replaced (rule 9). That an answer is read now
proves nothing about now: a leader that was stopped, or cut off, finds answers that are as old as
the messages that they answer. So each message says when it was sent, by the leader's clock, and the
answer returns that time. A voter that answered in the leader's term had voted for no other when the
message was sent. So a majority of answers proves that until then this leader alone led; another one
can have risen only since.
"""

from enum import Enum
from typing import Final

from quorate.quorum.raft.network.transport import VoterNode

NEVER: Final = float("-inf")


class LeaderLease:
    """The answers to the messages of one leadership."""

    def __init__(self) -> None:
        self._answered_s: dict[VoterNode, float] = {}

    def answered(self, node: VoterNode, sent_s: float, now_s: float) -> None:
        """Note that ``node`` answered a message of ``sent_s``, which cannot lie in the future."""
        known_s = self._answered_s.get(node, NEVER)
        self._answered_s[node] = max(known_s, min(sent_s, now_s))

    def forget(self, node: VoterNode) -> None:
        """Forget a node: the member that has its id from now on is another one."""
        self._answered_s.pop(node, None)

    def sole_leader_until_s(self, others: list[VoterNode], now_s: float) -> float:
        """Return up to when no other voter led, or ``NEVER`` if that is not known. ``others`` are
        the other voters.
        """
        if not others:
            return now_s
        answered = sorted((self._answered_s.get(node, NEVER) for node in others), reverse=True)
        return answered[(len(others) + 1) // 2 - 1]


# The leader's side of a leadership transfer.
#
# The leader takes no new entries, waits until the target has all entries, and tells it to
# stand at once. If that does not come about soon, the leader goes on as before.


MAX_LAG: Final = 10_000
"""A number of entries. A voter that is further behind would keep the clients waiting."""


class TransferRefused(Exception):
    """The leadership cannot be handed over; the message says why."""


class TransferNotYet(TransferRefused):
    """The leadership cannot be handed over as things are; that may pass by itself."""


class TransferStep(Enum):
    """The next action of the leader."""

    WAIT = 1
    TELL = 2
    GIVE_UP = 3


class LeadershipTransfer:
    """One attempt of a transfer, in one term."""

    def __init__(self, target: VoterNode, term: int, now_s: float, patience_s: float) -> None:
        """Begin the attempt. ``patience_s`` is the time for catching up, and once more for the
        election.
        """
        self.target = target
        self.term = term
        self.told = False
        self._patience_s = patience_s
        self._deadline_s = now_s + patience_s

    def step(self, now_s: float, match_index: int, last_index: int) -> TransferStep:
        """Return the next action. ``match_index`` is the target's; our log ends at
        ``last_index``.
        """
        if now_s > self._deadline_s:
            return TransferStep.GIVE_UP
        if self.told or match_index < last_index:
            return TransferStep.WAIT
        self.told = True
        self._deadline_s = now_s + self._patience_s
        return TransferStep.TELL
