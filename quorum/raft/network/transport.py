"""The connections between voters: the library's ``Transport`` with our own frames (P9, P12).

There is one connection per pair of voters, so each direction is one ordered stream. The voter with
the higher id dials; the other one does so only when that has not happened for a while, for example
because the first does not know of it any more. Both sides begin with a hello that names cluster and
voter; nothing else is accepted before it. A peer that ``admission`` does not welcome is told why,
and nothing more is accepted from it. Under TLS the certificate must name the voter that the hello
names.

Everything runs on the raft thread.
"""

import logging
import socket
from collections import Counter
from typing import Final

from pysyncobj.node import Node
from pysyncobj.transport import Transport

from quorate.common.grpc_support.refusal_log import RefusalLog
from quorate.common.tls.identity import Role
from quorate.common.tls.renewable import SecuritySource
from quorate.common.types import ID_BYTES, Endpoint, VoterId
from quorate.quorum.raft.admission import Admission
from quorate.quorum.raft.leaving import VoterStale
from quorate.quorum.raft.network.poller import DrivenPoller
from quorate.quorum.raft.network.raft_connection import Connection
from quorate.quorum.raft.network.raft_frames import (
    PROTOCOL_FORMAT,
    MalformedRaftFrame,
    Message,
    MessageEncoder,
    decode_frame,
    encode_hello,
    encode_refusal,
)
from quorate.quorum.raft.network.raft_tls import TlsContexts
from quorate.quorum.raft.network.sockets import Sockets, begin_connecting, socket_for
from quorate.quorum.raft.raft_clock import clock_s
from quorate_proto.v1.raft_pb2 import RAFT_REFUSAL_STALE, RaftHello, RaftRefusal

log = logging.getLogger(__name__)

REDIAL_S: Final = 0.2
OTHER_SIDE_DIALS_S: Final = 2.0
"""A voter with a higher id may take this long to dial, before it is dialled itself."""

OTHER_SIDE_DIALS_FIRST_S: Final = 0.4
"""The same while this voter waits for all others before it takes part: they may not have noticed
that it was away.
"""

REFUSED_REDIAL_S: Final = 1.0
HELLO_TIMEOUT_S: Final = 3.0
LOG_WAITING_EVERY_S: Final = 3.0
MAX_STRANGERS: Final = 32
"""The most accepted connections without a hello. One more closes the oldest of the host that has
the most, so that a voter still gets in.
"""

MAX_BACKLOG_BYTES: Final = 16 << 20
"""Entries for a peer with more unsent bytes than this are dropped: the peer then asks for them
again.
"""

SNAPSHOT_BACKLOG_BYTES: Final = 4 << 20
"""No further piece of a snapshot is read from disk while this much is unsent."""


class VoterNode(Node):  # type: ignore[misc]  # the library is untyped
    """A voter as the library knows it: its id is the voter id, in decimal."""

    def __init__(self, voter_id: VoterId, raft: Endpoint) -> None:
        super().__init__(str(voter_id))
        self.voter_id = voter_id
        self.raft = raft


class VoterTransport(Transport):  # type: ignore[misc]  # the library is untyped
    """Listens, dials, and hands decoded messages to the library."""

    def __init__(
        self,
        poller: DrivenPoller,
        cluster_id: str,
        own: VoterNode,
        others: list[VoterNode],
        admission: Admission,
        security: SecuritySource | None = None,
    ) -> None:
        """Create the transport. If ``security`` is None it is plain text, without any proof of the
        peers' identity.
        """
        super().__init__(None, own, others)
        self._poller = poller
        self._sockets = Sockets(poller)
        self._cluster_id = cluster_id
        self._own = own
        self._others: dict[int, VoterNode] = {node.voter_id: node for node in others}
        self._guests: dict[int, VoterNode] = {}
        """Peers that are no members as far as this voter knows, which may be behind. They are not
        dialled.
        """
        self._admission = admission
        self._now_s = 0.0
        self._logged_waiting_s = float("-inf")
        self._encoder = MessageEncoder()
        self._connections: dict[int, Connection] = {}
        self._unintroduced: dict[Connection, float] = {}
        self._refused: set[Connection] = set()
        self._dialling: set[int] = set()
        self._redial_at: dict[int, float] = {}
        self._down_since: dict[int, float] = {}
        self._complained: set[str] = set()
        self._tls = None if security is None else TlsContexts(security)
        self._refusals = RefusalLog("raft port")

    # -- what the library calls ------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return True

    def addNode(self, node: VoterNode) -> None:
        """Add a member: dial it, and tell the library if it is connected already."""
        self._others[node.voter_id] = node
        self._guests.pop(node.voter_id, None)
        if node.voter_id in self._connections:
            self._onNodeConnected(node)

    def dropNode(self, node: VoterNode) -> None:
        """Remove a member: ``announce`` tells it so."""
        voter_id = node.voter_id
        del self._others[voter_id]
        if voter_id in self._connections:
            self._guests[voter_id] = node
        for known in (self._redial_at, self._down_since):
            known.pop(voter_id, None)

    def send(self, node: VoterNode, message: Message) -> bool:
        """Send a message, or drop it where the peer is gone or far behind: the protocol repairs
        either.
        """
        connection = self._connections.get(node.voter_id)
        if connection is None:
            return False
        if connection.backlog_bytes > MAX_BACKLOG_BYTES and message.get("entries"):
            return False
        if message["type"] == "append_entries":
            message = {**message, "sent_s": clock_s()}
        connection.send(self._encoder.encode(message))
        return not connection.closed

    def destroy(self) -> None:
        self._sockets.stop_listening()
        for connection in [*self._connections.values(), *self._unintroduced]:
            connection.close("this voter is stopping")

    # -- ours ------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Bind the raft port.

        Raises:
            OSError: taken, or not an address of this machine.
        """
        self._sockets.listen(self._own.raft, self._take_stranger)

    def announce(self) -> None:
        """Tell all peers of the changed voter set, and close the connections to those that are not
        in it.
        """
        for voter_id, connection in list(self._connections.items()):
            refusal = self._admission.judge_again(voter_id)
            if refusal is None:
                self._log_first_publish(connection)
            else:
                self._refuse(connection, refusal)

    def tend(self, now: float) -> None:
        """Dial peers that are down; drop those that do not introduce themselves. Call it a few
        times a second.

        Raises:
            LeavesQuorum: this voter must not go on.
        """
        self._now_s = now
        self._admission.check(now)
        self._log_waiting(now)
        is_vouched = self._admission.folder.is_vouched
        other_side_s = OTHER_SIDE_DIALS_S if is_vouched else OTHER_SIDE_DIALS_FIRST_S
        for voter_id, node in self._others.items():
            if voter_id in self._connections or voter_id in self._dialling:
                self._down_since.pop(voter_id, None)
                continue
            down_s = now - self._down_since.setdefault(voter_id, now)
            dials = voter_id < self._own.voter_id
            if now >= self._redial_at.get(voter_id, 0) and (dials or down_s > other_side_s):
                self._redial_at[voter_id] = now + (REDIAL_S if dials else other_side_s)
                self._dial(node)
        for connection, since in list(self._unintroduced.items()):
            if now - since > HELLO_TIMEOUT_S:
                connection.close("no hello")

    def can_take_snapshot_piece(self, node: VoterNode) -> bool:
        connection = self._connections.get(node.voter_id)
        return connection is not None and connection.backlog_bytes < SNAPSHOT_BACKLOG_BYTES

    def is_connected(self, voter_id: int) -> bool:
        return voter_id in self._connections

    # -- connections -----------------------------------------------------------------------------

    def _take_stranger(self, sock: socket.socket, host: str) -> None:
        strangers = [known for known in self._unintroduced if not known.voter_id]
        if len(strangers) >= MAX_STRANGERS:
            crowd, _ = Counter(known.peer_host for known in strangers).most_common(1)[0]
            oldest = next(known for known in strangers if known.peer_host == crowd)
            oldest.close(f"{MAX_STRANGERS} connections have not introduced themselves")
        connection = self._connection(sock, host, accepted=True)
        self._unintroduced[connection] = clock_s()

    def _dial(self, node: VoterNode) -> None:
        address = self._sockets.address_of(node.raft)
        if address is None:
            return
        sock = socket_for(address)
        self._dialling.add(node.voter_id)
        connection = self._connection(sock, node.raft.host, accepted=False)
        connection.voter_id = node.voter_id
        self._unintroduced[connection] = clock_s()
        failure = begin_connecting(sock, address)
        if failure:
            connection.close(failure)

    def _connection(self, sock: socket.socket, peer_host: str, *, accepted: bool) -> Connection:
        return Connection(
            self._poller,
            sock,
            connecting=not accepted,
            peer_host=peer_host,
            tls=None if self._tls is None else self._tls.stream(accepted=accepted),
            on_connected=self._on_connected,
            on_frame=self._on_frame,
            on_closed=self._on_closed,
        )

    def _on_connected(self, connection: Connection) -> None:
        """Send our hello, with the voter that we meant to dial: the side that dials introduces
        itself first.
        """
        if connection.voter_id:
            self._check_certificate(connection, connection.voter_id)
            self._log_first_publish(connection)

    def _log_first_publish(self, connection: Connection) -> None:
        hello = self._admission.hello_to(VoterId(connection.voter_id))
        hello.cluster_id = self._cluster_id
        hello.format = PROTOCOL_FORMAT
        connection.send(encode_hello(hello))

    def _on_frame(self, connection: Connection, body: bytes) -> None:
        if connection in self._refused:
            return
        content = decode_frame(body)
        node = self._node(connection.voter_id)
        if isinstance(content, RaftHello):
            was_admitted = self._admission.is_admitted
            self._on_hello(connection, content)
            if self._admission.is_admitted and not was_admitted:
                # A voter that waits for the first start may learn that it is expected.
                self.announce()
        elif isinstance(content, RaftRefusal):
            self._on_refusal(connection, content)
        elif node is None or self._connections.get(connection.voter_id) is not connection:
            raise MalformedRaftFrame("a message before the hello")
        else:
            self._onMessageReceived(node, content)

    def _on_hello(self, connection: Connection, hello: RaftHello) -> None:
        dialled = connection.voter_id != 0
        self._check_hello(connection, hello)
        self._check_certificate(connection, hello.voter_id)
        connection.introduced = True
        self._refusals.accepted(connection.peer_host)
        refusal = self._admission.judge(hello)
        if refusal is not None:
            connection.voter_id = hello.voter_id
            self._refuse(connection, refusal)
            return
        try:
            self._admission.heard(hello)
        except VoterStale as stale:
            self._tell_all(connection, stale)
            raise
        if self._connections.get(hello.voter_id) is connection:
            return  # It has news of itself.
        self._unintroduced.pop(connection, None)
        self._dialling.discard(hello.voter_id)
        older = self._connections.pop(hello.voter_id, None)
        if older is not None:
            older.close("the peer connected again")
        connection.voter_id = hello.voter_id
        if not dialled:
            self._log_first_publish(connection)
        self._connections[hello.voter_id] = connection
        self._complained -= {str(hello.voter_id), f"refused {hello.voter_id}", "waiting"}
        log.info("connected to voter %d", hello.voter_id)
        if hello.voter_id in self._others:
            self._onNodeConnected(self._others[hello.voter_id])
        else:
            self._guests[hello.voter_id] = VoterNode(VoterId(hello.voter_id), self._own.raft)

    def _check_certificate(self, connection: Connection, voter_id: int) -> None:
        if self._tls is None:
            return
        principal = connection.principal
        if principal is None or not principal.is_node(Role.VOTER, voter_id):
            raise MalformedRaftFrame(
                f"the certificate of {principal} is not that of voter {voter_id}"
            )

    def _check_hello(self, connection: Connection, hello: RaftHello) -> None:
        if hello.format != PROTOCOL_FORMAT:
            raise MalformedRaftFrame(f"peer speaks format {hello.format}, not {PROTOCOL_FORMAT}")
        if hello.cluster_id != self._cluster_id:
            raise MalformedRaftFrame(
                f"peer belongs to cluster {hello.cluster_id!r}, not {self._cluster_id!r}"
            )
        if hello.voter_id < 1 or hello.voter_id == self._own.voter_id:
            raise MalformedRaftFrame(f"peer calls itself voter {hello.voter_id}")
        if len(hello.directory_id) != ID_BYTES:
            raise MalformedRaftFrame(f"a directory id of {len(hello.directory_id)} bytes")
        if connection.voter_id not in (0, hello.voter_id):
            raise MalformedRaftFrame(
                f"voter {hello.voter_id} answers at the address of voter {connection.voter_id}"
            )

    def _node(self, voter_id: int) -> VoterNode | None:
        return self._others.get(voter_id) or self._guests.get(voter_id)

    def _refuse(self, connection: Connection, refusal: RaftRefusal) -> None:
        """Tell the peer the reason, and let it close the connection: our close could overtake the
        message.
        """
        self._complain(f"refused {connection.voter_id}", f"refused: {refusal.detail}")
        connection.send(encode_refusal(refusal))
        if connection.closed:
            return
        self._lost(connection, "it is refused")
        self._refused.add(connection)
        self._unintroduced[connection] = clock_s()

    def _tell_all(self, connection: Connection, stale: VoterStale) -> None:
        """Tell the other voters why this one leaves, which they show to their administrator."""
        # Of voter set 0: a voter of an earlier release does not take it for its own removal.
        farewell = RaftRefusal(reason=RAFT_REFUSAL_STALE, detail=str(stale))
        for peer in {connection, *self._connections.values()}:
            peer.send(encode_refusal(farewell))

    def _on_refusal(self, connection: Connection, refusal: RaftRefusal) -> None:
        voter_id = connection.voter_id
        if voter_id == 0:
            raise MalformedRaftFrame("a refusal before the hello")
        if refusal.reason == RAFT_REFUSAL_STALE:
            log.error("%s", refusal.detail)
            self._admission.stale[voter_id] = refusal.detail
            connection.close("its data folder is an old copy")
            return
        matters = self._admission.refused(refusal, self._now_s)
        if matters and not self._admission.is_admitted:
            self._complain("waiting", f"waiting to be added: run {self._admission.how_to_add()}")
        self._redial_at[voter_id] = self._now_s + REFUSED_REDIAL_S
        connection.close(f"it refuses this voter: {refusal.detail}")

    def _log_waiting(self, now: float) -> None:
        if now - self._logged_waiting_s < LOG_WAITING_EVERY_S:
            return
        if self._logged_waiting_s != float("-inf"):
            for voter in self._admission.waits_for():
                disagreement = self._admission.disagreement(voter.voter_id)
                log.warning(
                    "the first start needs every voter: waiting for voter %d at %s%s",
                    voter.voter_id,
                    voter.raft,
                    f"; {disagreement}" if disagreement else "",
                )
        self._logged_waiting_s = now

    def _lost(self, connection: Connection, reason: str) -> bool:
        voter_id = connection.voter_id
        if self._connections.get(voter_id) is not connection:
            return False
        del self._connections[voter_id]
        log.info("lost voter %d: %s", voter_id, reason)
        if voter_id in self._others:
            self._onNodeDisconnected(self._others[voter_id])
        self._guests.pop(voter_id, None)
        return True

    def _on_closed(self, connection: Connection, reason: str) -> None:
        self._unintroduced.pop(connection, None)
        self._refused.discard(connection)
        self._dialling.discard(connection.voter_id)
        voter_id = connection.voter_id
        if self._lost(connection, reason):
            return
        if voter_id:
            self._complain(str(voter_id), f"connection with voter {voter_id}: {reason}")
        else:
            self._refusals.refused(connection.peer_host, reason)

    def _complain(self, about: str, what: str) -> None:
        """Warn once per peer until it is heard from again: one that is down is dialled for ever."""
        if about not in self._complained:
            self._complained.add(about)
            log.warning("%s", what)
