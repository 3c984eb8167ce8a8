"""The product's transport, its connections carried by the simulated network.

All that is decided is the product's: who dials, the hellos, who is admitted, the frames. Only what
would be a socket is not.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_connection import Connection
from quorate.quorum.raft.network.raft_frames import LENGTH_BYTES, MalformedRaftFrame, Message
from quorate.quorum.raft.network.transport import VoterNode, VoterTransport
from tests.sim.network import Link

if TYPE_CHECKING:
    from tests.sim.host import Host

CLUSTER_ID: Final = "simulated"
SNAPSHOT_BACKLOG_BYTES: Final = 4_000
"""The product's limit, lowered to what the snapshots of short runs reach."""


class End:
    """One side of a connection: what ``Connection`` is to the transport."""

    def __init__(self, host: "Host", link: Link, on_closed: Callable[["End", str], None]) -> None:
        self.link = link
        self.voter_id = 0
        self.introduced = False
        self.closed = False
        self.principal = None
        self.peer_host = f"voter {link.other(host.voter_id)}"
        self.sends_messages = False
        self._host = host
        self._on_closed = on_closed

    @property
    def backlog_bytes(self) -> int:
        return self.link.bytes_under_way[self.link.other(self._host.voter_id)]

    def send(self, frame: bytes) -> None:
        if self.closed:
            return
        self._host.effect("send")
        body = frame[LENGTH_BYTES:]
        self._host.network.send(self.link, self._host.voter_id, body, sure=not self.sends_messages)

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._host.network.close(self.link, self._host.voter_id)
        self._on_closed(self, reason)


class SimulatedTransport(VoterTransport):
    """One process's."""

    def __init__(
        self,
        host: "Host",
        poller: "SimulatedPoller",
        own: VoterNode,
        others: list[VoterNode],
        admission: Admission,
    ) -> None:
        super().__init__(cast(DrivenPoller, poller), CLUSTER_ID, own, others, admission)
        self._host = host
        self._ends: dict[int, End] = {}
        self.on_sent: Callable[[int, Message], None] = lambda _to, _message: None

    def send(self, node: VoterNode, message: Message) -> bool:
        connection = self._connections.get(node.voter_id)
        if connection is None:
            return False
        self.on_sent(int(node.voter_id), message)
        end = cast(End, connection)
        end.sends_messages = True
        try:
            return super().send(node, message)
        finally:
            end.sends_messages = False

    def take(self, link: Link, frame: bytes | None) -> None:
        """Handle one frame, or the end, of a connection; the first frame of a new one opens it."""
        end = self._ends.get(link.number)
        if end is None:
            if frame is None or not link.is_open[self._host.voter_id]:
                return
            end = self._opened(link)
            self._unintroduced[cast(Connection, end)] = self._host.clock_s()
        if end.closed:
            return
        if frame is None:
            end.close("the peer closed the connection")
            return
        try:
            self._on_frame(cast(Connection, end), frame)
        except MalformedRaftFrame as error:
            end.close(f"malformed frame: {error}")

    def _opened(self, link: Link) -> End:
        end = End(self._host, link, self._end_closed)
        self._ends[link.number] = end
        return end

    def _end_closed(self, end: End, reason: str) -> None:
        self._ends.pop(end.link.number, None)
        self._on_closed(cast(Connection, end), reason)

    def _dial(self, node: VoterNode) -> None:
        voter_id = node.voter_id

        def failed() -> None:
            if self._host.is_process_of(self):
                self._dialling.discard(voter_id)

        self._dialling.add(voter_id)
        link = self._host.network.dial(self._host.voter_id, int(voter_id), failed)
        if link is not None:
            end = self._opened(link)
            end.voter_id = int(voter_id)
            self._unintroduced[cast(Connection, end)] = self._host.clock_s()
            self._on_connected(cast(Connection, end))

    def _onMessageReceived(self, node: VoterNode, message: Message) -> None:
        peer = int(node.voter_id)
        self._host.receives(peer, message)
        super()._onMessageReceived(node, message)
        self._host.observer.received(self._host, peer, message)

    def _onNodeConnected(self, node: VoterNode) -> None:
        self._host.note(f"connected to {node.voter_id}")
        self._host.observer.connected(self._host, int(node.voter_id))
        super()._onNodeConnected(node)

    def _onNodeDisconnected(self, node: VoterNode) -> None:
        self._host.observer.disconnected(self._host, int(node.voter_id))
        super()._onNodeDisconnected(node)


class SimulatedPoller:
    """Hands over what has arrived; the simulation waits, not the poller."""

    def __init__(self, host: "Host", wake: Callable[[], None]) -> None:
        self._host = host
        self.wake = wake
        self.take: Callable[[Link, bytes | None], None] = lambda _link, _frame: None

    def subscribe(self, *_args: Any) -> None:  # noqa: ANN401 - as the library has it
        """There are no descriptors."""

    def unsubscribe(self, descr: int) -> None:
        """There are no descriptors."""

    def poll(self, timeout: float) -> None:
        """Do nothing, as ``DrivenPoller``."""

    def wait(self, timeout_s: float) -> None:
        inbox = self._host.inbox
        for _ in range(len(inbox)):
            self.take(*inbox.popleft())

    def close(self) -> None:
        """Nothing is open."""
