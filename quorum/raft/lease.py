"""Since when a leader can have been replaced: what answers to its messages prove (rule 9). Pure.

That an answer is read now says nothing about now: a leader that was stopped, or cut off, finds
answers that are as old as the messages that they answer. So each message says when it was sent, by
the leader's clock, and the answer returns that. Whoever answered in the leader's term had voted for
nobody else when the message was sent. So a majority of answers says of the time before that the
leader alone led, and of the time after that another one can have risen only since.
"""

from typing import Final

from quorum.raft.transport import VoterNode

NEVER: Final = float("-inf")


class Lease:
    """Of one leadership."""

    def __init__(self) -> None:
        self._answered_s: dict[VoterNode, float] = {}

    def answered(self, node: VoterNode, sent_s: float, now_s: float) -> None:
        """``node`` answered what was sent at ``sent_s``, which cannot lie in the future."""
        known_s = self._answered_s.get(node, NEVER)
        self._answered_s[node] = max(known_s, min(sent_s, now_s))

    def forget(self, node: VoterNode) -> None:
        """What is a member under this name from now on is another one."""
        self._answered_s.pop(node, None)

    def sole_leader_until_s(self, others: list[VoterNode], now_s: float) -> float:
        """Up to when nobody else led: ``others`` are the other voters; ``NEVER``: not known."""
        if not others:
            return now_s
        answered = sorted((self._answered_s.get(node, NEVER) for node in others), reverse=True)
        return answered[(len(others) + 1) // 2 - 1]
