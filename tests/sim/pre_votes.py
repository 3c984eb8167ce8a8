"""Who asks for pre-votes, and who gives one (P8, P17): only where the leader has fallen silent."""

from typing import NamedTuple

from quorum.raft.frames import Message, decode_frame
from tests.sim.host import Host
from tests.sim.world import Violation


class _Heard(NamedTuple):
    leader: int
    boot: int
    at_s: float
    """By the own clock of who heard it."""


class PreVotes:
    """Told of what voters send and receive."""

    def __init__(self) -> None:
        self._heard: dict[int, _Heard] = {}

    def receives(self, host: Host, peer: int, message: Message) -> None:
        """A message is handed to a voter, which has not looked at it yet."""
        process = host.process
        if process is None or message["type"] != "append_entries":
            return
        if message["term"] >= process.node.term and process.node.admission.takes_part:
            self._heard[host.voter_id] = _Heard(peer, host.boots, host.clock_s())

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
