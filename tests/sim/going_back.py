"""Checks how leader and follower find the last entry that both have (P7)."""

from typing import Final

from quorate.quorum.raft.network.raft_frames import Message
from tests.sim.host import Host
from tests.sim.world import Violation

STEPS_BACK: Final = 6
"""One entry at a time a follower goes back so often: through as many terms of one entry."""


class GoingBack:
    """A checker that is told of what leader and followers say to each other."""

    def __init__(self) -> None:
        self._last_steps: dict[tuple[int, int], tuple[int, int]] = {}
        """The index that a follower went back to, and by how many steps of one entry, by follower
        and term."""
        self._asked: dict[tuple[int, int], tuple[int, int]] = {}
        """The term, and what the leader must send next, or earlier, by leader and follower."""

    def answers(self, host: Host, message: Message) -> None:
        """A follower does: a conflict by the beginning of its term, not entry by entry."""
        if not message["reset"]:
            return
        index: int = message["next_node_idx"]
        key = (host.voter_id, message["term"])
        before, steps = self._last_steps.get(key, (0, 0))
        steps = steps + 1 if index == before - 1 else 0
        self._last_steps[key] = (index, steps)
        if steps > STEPS_BACK:
            raise Violation(
                f"voter {host.voter_id} goes back entry by entry, to {index}, under the leader of "
                f"term {message['term']}: reconciling takes a round per entry"
            )

    def answered(self, host: Host, peer: int, message: Message) -> None:
        """The leader has dealt with an answer."""
        process = host.process
        if process is None or not process.node.is_leader:
            return
        term = process.node.term
        if message["term"] != term or not process.node.admission.counts(peer):
            return
        key = (host.voter_id, peer)
        asked_term, asked = self._asked.get(key, (0, 0))
        if not message["reset"]:
            self._asked.pop(key, None)
        elif asked_term != term or message["next_node_idx"] < asked:
            self._asked[key] = (term, message["next_node_idx"])

    def connected(self, host: Host, peer: int) -> None:
        """Forget what a peer asked for. It may be another process, or was no member in between, so
        the leader begins anew."""
        self._asked.pop((host.voter_id, peer), None)

    def sends(self, host: Host, to: int, message: Message) -> None:
        """Check that the leader sends what was asked for. Otherwise it could send the same for
        ever, to be answered the same."""
        term, asked = self._asked.pop((host.voter_id, to), (0, 0))
        if message["term"] == term and message.get("prevLogIdx", 0) >= asked:
            raise Violation(
                f"voter {to} asked leader {host.voter_id} of term {term} to go back to {asked}; it "
                f"sends what follows {message['prevLogIdx']}"
            )
