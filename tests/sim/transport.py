"""The library's transport and the driver's poller over the simulated network.

Messages go through the product's own frames, both ways. Like the product's transport: one
connection per pair, dialled by the higher id, a hello each way before anything else counts, and a
new connection replaces the one before.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from pysyncobj.node import Node
from pysyncobj.transport import Transport

from quorate_proto.v1.raft_pb2 import RaftHello
from quorum.raft.frames import (
    LENGTH_BYTES,
    Message,
    MessageEncoder,
    decode_frame,
    encode_hello,
)
from quorum.raft.transport import HELLO_TIMEOUT_S, REDIAL_S, VoterNode
from tests.sim.network import Connection

if TYPE_CHECKING:
    from tests.sim.host import Host

CLUSTER_ID: Final = "simulated"
SNAPSHOT_BACKLOG_BYTES: Final = 4_000


class SimulatedNode(VoterNode):
    """Hashed by its number, so that sets of nodes have the same order in every process."""

    def __hash__(self) -> int:
        return int(self.voter_id)


class SimulatedTransport(Transport):  # type: ignore[misc]  # the library is untyped
    """One process's end of its connections."""

    def __init__(self, host: "Host", others: Iterable[SimulatedNode]) -> None:
        super().__init__(None, None, [])
        self._host = host
        self._others = {int(node.voter_id): node for node in others}
        self._encoder = MessageEncoder()
        self._connections: dict[int, Connection] = {}
        self._dialling: dict[int, tuple[Connection | None, float]] = {}
        self._redial_at: dict[int, float] = {}
        self.on_sent: Callable[[int, Message], None] = lambda _to, _message: None

    # -- what the library and the node call ------------------------------------------------------

    @property
    def ready(self) -> bool:
        return True

    def addNode(self, node: Node) -> None:
        raise NotImplementedError

    def dropNode(self, node: Node) -> None:
        raise NotImplementedError

    def send(self, node: VoterNode, message: Message) -> bool:
        voter_id = int(node.voter_id)
        connection = self._connections.get(voter_id)
        if connection is None:
            return False
        self._host.effect("send")
        self.on_sent(voter_id, message)
        frame = self._encoder.encode(message)
        self._host.network.send(connection, self._host.voter_id, frame[LENGTH_BYTES:])
        return True

    def destroy(self) -> None:
        for connection in self._host.network.connections_of(self._host.voter_id):
            self._host.network.close(connection, self._host.voter_id)

    def tend(self, now: float) -> None:
        own = self._host.voter_id
        for voter_id in self._others:
            connection, since = self._dialling.get(voter_id, (None, now))
            if now - since > HELLO_TIMEOUT_S:
                del self._dialling[voter_id]
                if connection is not None:
                    self._host.network.close(connection, own)
            busy = voter_id in self._connections or voter_id in self._dialling
            if voter_id < own and not busy and now >= self._redial_at.get(voter_id, 0.0):
                self._redial_at[voter_id] = now + REDIAL_S
                self._dial(voter_id, now)

    def can_take_snapshot_piece(self, node: VoterNode) -> bool:
        connection = self._connections.get(int(node.voter_id))
        if connection is None:
            return False
        return connection.bytes_under_way[int(node.voter_id)] < SNAPSHOT_BACKLOG_BYTES

    def is_connected(self, voter_id: int) -> bool:
        return voter_id in self._connections

    # -- what arrives ----------------------------------------------------------------------------

    def take(self, connection: Connection, frame: bytes | None) -> None:
        """Handle one frame, or the end, of a connection."""
        peer = connection.other(self._host.voter_id)
        if frame is None:
            self._ended(connection, peer)
            return
        if not connection.is_open[self._host.voter_id]:
            return
        content = decode_frame(frame)
        if isinstance(content, RaftHello):
            self._on_hello(connection, peer)
        elif self._connections.get(peer) is connection:
            self._host.handled(peer, content)
            self._onMessageReceived(self._others[peer], content)

    def _ended(self, connection: Connection, peer: int) -> None:
        dialling = self._dialling.get(peer)
        if dialling is not None and dialling[0] is connection:
            del self._dialling[peer]
        if self._connections.get(peer) is connection:
            del self._connections[peer]
            self._onNodeDisconnected(self._others[peer])

    def _on_hello(self, connection: Connection, peer: int) -> None:
        self._dialling.pop(peer, None)
        older = self._connections.pop(peer, None)
        if older is not None:
            self._host.network.close(older, self._host.voter_id)
            self._onNodeDisconnected(self._others[peer])
        if connection.dialler == peer:
            self._introduce(connection)
        self._connections[peer] = connection
        self._host.note(f"connected to {peer}")
        self._onNodeConnected(self._others[peer])

    def _introduce(self, connection: Connection) -> None:
        hello = encode_hello(CLUSTER_ID, self._host.voter_id)[LENGTH_BYTES:]
        self._host.network.send(connection, self._host.voter_id, hello, hello=True)

    def _dial(self, voter_id: int, now: float) -> None:
        def failed() -> None:
            if self._dialling.get(voter_id) == (None, now):
                del self._dialling[voter_id]

        self._dialling[voter_id] = (None, now)
        connection = self._host.network.dial(self._host.voter_id, voter_id, failed)
        if connection is not None:
            self._dialling[voter_id] = (connection, now)
            self._introduce(connection)


class SimulatedPoller:
    """Hands over what has arrived; the simulation waits, not the poller."""

    def __init__(self, host: "Host", wake: Callable[[], None]) -> None:
        self._host = host
        self.wake = wake
        self.take: Callable[[Connection, bytes | None], None] = lambda _connection, _frame: None

    def subscribe(self, *_args: Any) -> None:  # noqa: ANN401 - as the library has it
        """There are no descriptors."""

    def unsubscribe(self, descr: int) -> None:
        """There are no descriptors."""

    def poll(self, timeout: float) -> None:
        """As ``DrivenPoller``: nothing."""

    def wait(self, timeout_s: float) -> None:
        inbox = self._host.inbox
        for _ in range(len(inbox)):
            self.take(*inbox.popleft())

    def close(self) -> None:
        """Nothing is open."""
