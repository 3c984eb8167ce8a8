"""Checks what followers say they have, and what leaders believe of it (P4, P5)."""

from quorate.quorum.raft.network.raft_frames import Message
from tests.sim.host import Host
from tests.sim.process import Process
from tests.sim.world import Violation


class Acknowledgements:
    """An observer of the answers of followers: when they are sent, before they are read, and
    after."""

    def __init__(self, hosts: dict[int, Host]) -> None:
        self._hosts = hosts
        self._match_before = 0

    def sends(self, host: Host, to: int, message: Message) -> None:
        """A follower answers what its leader sent."""
        if host.process is not None and message["term"] != host.process.node.term:
            raise Violation(
                f"voter {host.voter_id} answers in term {message['term']}, which it has left"
            )
        if message["success"]:
            through = message["next_node_idx"] - 1
            if through > host.disk.last_index:
                raise Violation(
                    f"voter {host.voter_id} acknowledges {through}, its disk ends at "
                    f"{host.disk.last_index}"
                )
            self._is_the_leaders(host, self._hosts[to], message["term"], through)

    def _is_the_leaders(self, host: Host, leader: Host, term: int, through: int) -> None:
        """P4: the acknowledged entry is the one in the log of who leads in that term."""
        process = leader.process
        if process is None or not process.node.is_leader or process.node.term != term:
            return
        theirs = process.journal.term_at(through)
        if process.journal.first_index < through and (
            theirs is None or not host.disk.holds(through, theirs)
        ):
            raise Violation(
                f"voter {host.voter_id} acknowledges its own entry {through}, which leader "
                f"{leader.voter_id} of term {term} does not have"
            )

    def receives(self, host: Host, peer: int) -> None:
        """Something is handed to a voter, which has not looked at it yet."""
        self._match_before = _matches(host).get(peer, 0)

    def received(self, host: Host, peer: int, message: Message) -> None:
        """P5: an answer of an earlier term says nothing about the log of this one."""
        process = host.process
        if process is None:
            return
        term = process.node.term
        if message["term"] < term and _matches(host).get(peer, 0) > self._match_before:
            raise Violation(
                f"leader {host.voter_id} counts an acknowledgement of term {message['term']} in "
                f"term {term}"
            )

    def knows_its_followers(self, host: Host, process: Process) -> None:
        """Check that entries which a leader takes for replicated are on the disk of a follower of
        its term."""
        node = process.node
        for other in node.others:
            match = node.match_index.get(other, 0)
            term = process.journal.term_at(match)
            follower = self._hosts[int(other.voter_id)]
            meta = follower.disk.meta
            if term is None or meta is None or meta.term != node.term:
                continue
            if follower.set_aside is not None and not _takes_part(follower):
                continue  # Nobody has told it yet that its folder is an old copy.
            if match > 1 and not follower.disk.holds(match, term):
                raise Violation(
                    f"leader {host.voter_id} believes that voter {follower.voter_id} has entry "
                    f"{match} of term {term}; it has not"
                )


def _matches(host: Host) -> dict[int, int]:
    if host.process is None or not host.process.node.is_leader:
        return {}
    node = host.process.node
    return {int(other.voter_id): match for other, match in node.match_index.items()}


def _takes_part(host: Host) -> bool:
    return host.process is not None and host.process.node.admission.takes_part
