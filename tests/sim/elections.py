"""Checks who leads, from when on, and by whose votes."""

from collections.abc import Callable

from quorate.quorum.raft.network.raft_frames import Message
from tests.sim.host import Host
from tests.sim.process import Process
from tests.sim.record import Record
from tests.sim.world import Violation, World


class Elections:
    """A checker that is told of votes, and of who takes itself for the leader."""

    def __init__(
        self, world: World, record: Record, is_enough_to_lead: Callable[[set[int]], bool]
    ) -> None:
        self.leaders: dict[int, tuple[int, int]] = {}
        """The leader of each term: the voter, and the number of its boot."""
        self.on_leader: Callable[[Host, int], None] = lambda _host, _term: None
        self._world = world
        self._record = record
        self._is_enough_to_lead = is_enough_to_lead
        self._votes: dict[tuple[bytes, int], int] = {}
        """The candidate that was voted for, by data folder and term."""
        self._committed_at_election: dict[int, int] = {}
        self._elected_s: dict[int, float] = {}
        self._received_votes: dict[tuple[int, int], set[int]] = {}

    def leads(self, host: Host, process: Process) -> None:
        """A voter does, in its term: alone, elected, and for all that is committed."""
        node = process.node
        self._takes_office(host, node.term)
        self._led_alone(host, process)
        if node.leads_caught_up and node.last_applied < self._committed_at_election[node.term]:
            raise Violation(
                f"leader {host.voter_id} answers for the quorum at {node.last_applied}; up to "
                f"{self._committed_at_election[node.term]} was committed before it led"
            )

    def _takes_office(self, host: Host, term: int) -> None:
        leader = (host.voter_id, host.boots)
        known = self.leaders.get(term)
        if known is None:
            self.leaders[term] = leader
            self._committed_at_election[term] = self._record.last_index
            self._elected_s[term] = self._world.now
            votes = {host.voter_id, *self._received_votes.get((host.voter_id, term), ())}
            if not self._is_enough_to_lead(votes):
                raise Violation(
                    f"voter {host.voter_id} leads in term {term} with the votes of {votes} alone"
                )
            host.note(f"leads in term {term}")
            self.on_leader(host, term)
        elif known != leader:
            raise Violation(f"two leaders in term {term}: {known} and {leader} (voter, boot)")

    def _led_alone(self, host: Host, process: Process) -> None:
        """Rule 9: what a leader takes for the time of its sole leadership is."""
        until_s = host.true_time(process.driver.sole_leader_until_s)
        for term, elected_s in self._elected_s.items():
            if term > process.node.term and elected_s < until_s:
                raise Violation(
                    f"voter {host.voter_id} of term {process.node.term} thinks that nobody else "
                    f"led before {until_s:.3f}, but {self.leaders[term][0]} did from "
                    f"{elected_s:.3f} on"
                )

    def votes_for(self, host: Host, candidate: int, term: int) -> None:
        """Check that a voter votes once per term, and never for what its disk does not say."""
        meta = host.disk.meta
        on_disk = None if meta is None else (meta.term, meta.voted_for)
        if on_disk != (term, str(candidate)):
            raise Violation(
                f"voter {host.voter_id} votes for {candidate} in term {term}; "
                f"its disk says {on_disk}"
            )
        given = self._votes.setdefault((host.directory_id, term), candidate)
        if given != candidate:
            raise Violation(
                f"voter {host.voter_id} votes twice in term {term}: for {given} and {candidate}"
            )

    def receives(self, host: Host, peer: int, message: Message) -> None:
        """A message is handed to a voter."""
        if message["type"] == "response_vote":
            key = (host.voter_id, message["term"])
            self._received_votes.setdefault(key, set()).add(peer)
