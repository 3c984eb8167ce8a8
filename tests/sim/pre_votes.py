"""Checks who asks for pre-votes and who gives one (P8, P17): only when the leader has fallen
silent.

It also checks who stands for election: only with pre-votes of a majority, or told to by the leader.
"""

from typing import NamedTuple

from quorate.quorum.raft.network.raft_frames import Message, decode_frame
from tests.sim.host import Host
from tests.sim.world import Violation


class _Heard(NamedTuple):
    leader: int
    boot: int
    at_s: float
    """The time by the own clock of who heard it."""


class _Standing:
    """The standing of one process as a candidate."""

    def __init__(self, boot: int) -> None:
        self.boot = boot
        self.granted_by: set[int] = set()
        self.was_told_to = False
        self.stood_in = 0


class PreVotes:
    """A checker that is told of what voters send and receive."""

    def __init__(self) -> None:
        self._heard: dict[int, _Heard] = {}
        self._standing: dict[int, _Standing] = {}

    def receives(self, host: Host, peer: int, message: Message) -> None:
        """A message is handed to a voter, which has not looked at it yet."""
        process = host.process
        if process is None or not process.node.admission.takes_part:
            return
        match message["type"]:
            case "append_entries" if message["term"] >= process.node.term:
                self._heard[host.voter_id] = _Heard(peer, host.boots, host.clock_s())
            case "response_pre_vote":
                self._of(host).granted_by.add(peer)
            case "timeout_now":
                self._of(host).was_told_to = True

    def disconnected(self, host: Host, peer: int) -> None:
        """A closed connection says of a leader as much as its silence."""
        heard = self._heard.get(host.voter_id)
        if heard is not None and heard.leader == peer:
            del self._heard[host.voter_id]

    def grants(self, host: Host, to: int) -> None:
        """P8: not to unseat a leader that is heard."""
        heard = self._heard.get(host.voter_id)
        process = host.process
        if heard is None or heard.boot != host.boots or process is None or process.node.is_leader:
            return
        silent_s = host.clock_s() - heard.at_s
        if silent_s < process.node.options.election_timeout_min_s:
            raise Violation(
                f"voter {host.voter_id} would vote for {to} though it heard from leader "
                f"{heard.leader}, to which it is connected, {silent_s:.3f} s ago"
            )

    def asks(self, host: Host) -> None:
        """P17: what lies in the sockets may be the heartbeat that was waited for."""
        self._of(host).granted_by.clear()
        process = host.process
        if process is None:
            return
        for link, frame in host.inbox:
            if frame is None or not link.is_open[host.voter_id]:
                continue
            message = decode_frame(frame)
            if not isinstance(message, dict) or message["type"] != "append_entries":
                continue
            if message["term"] >= process.node.term:
                raise Violation(
                    f"voter {host.voter_id} asks for votes over a heartbeat it has not read"
                )

    def stands(self, host: Host, term: int) -> None:
        """P8: no term is spent on an election that cannot be won."""
        standing, process = self._of(host), host.process
        if process is None or term == standing.stood_in:
            return
        voters = len(process.node.others) + 1
        granted_by = sorted(standing.granted_by)
        if 2 * (len(granted_by) + 1) <= voters and not standing.was_told_to:
            raise Violation(
                f"voter {host.voter_id}, one of {voters}, stands in term {term} with pre-votes of "
                f"{granted_by} alone"
            )
        standing = self._standing[host.voter_id] = _Standing(host.boots)
        standing.stood_in = term

    def _of(self, host: Host) -> _Standing:
        standing = self._standing.get(host.voter_id)
        if standing is None or standing.boot != host.boots:
            standing = self._standing[host.voter_id] = _Standing(host.boots)
        return standing
