"""The quorum in one process, without Raft: real transactions, real ``apply``, no disk, no clock.

``LocalQuorumClient`` has the surface of ``QuorumClient``. Everything that a test
wants to go wrong is a verb of ``LocalQuorum``: sessions expire, the quorum stops answering, an
answer is lost after the transaction was applied.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from quorate.common.types import NO_SESSION, MetadataOffset, SessionId
from quorate.metadata_log.apply import apply
from quorate.metadata_log.codec import decode_transaction, encode_transaction
from quorate.metadata_log.features import NEWEST_METADATA_VERSION
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    Operation,
    SessionClosed,
    SessionOpened,
    Transaction,
    TransactionResult,
)
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate.quorum.client.quorum_client import TransactionsApplied, WatchEvent
from quorate.quorum.quorum_errors import (
    OutcomeUnknown,
    QuorumUnavailable,
    SessionLost,
    TransactionTooLarge,
)
from quorate_proto.v1 import quorum_pb2 as pb
from tests.support.metadata import first_voter_set
from tests.support.waiting import async_let_time_pass

CLUSTER_ID = "local-cluster"
SESSION_TIMEOUT_MS = 6_000


class LocalQuorum:
    """The metadata log, and every client's view of it."""

    def __init__(self) -> None:
        self.image = Image()
        self.log: list[tuple[MetadataOffset, Transaction]] = []
        self.available = True
        self.latency_s = 0.0
        self.metadata_version_max = NEWEST_METADATA_VERSION
        self._answers_to_lose: dict[LocalQuorumClient, int] = {}
        self._before_next: dict[LocalQuorumClient, Callable[[], object]] = {}
        self._clients: list[LocalQuorumClient] = []
        self._grown = asyncio.Event()
        self._sessions = 0
        self.write(Operation(records=(first_voter_set(),)))

    def client(self, description: str = "a test") -> "LocalQuorumClient":
        client = LocalQuorumClient(self, description=description)
        self._clients.append(client)
        return client

    def apply(self, transaction: Transaction) -> TransactionResult:
        """Apply through the wire form, as a voter does."""
        encoded = encode_transaction(transaction)
        if len(encoded) > Transaction.MAX_ENCODED_BYTES:
            raise TransactionTooLarge(f"{len(encoded)} bytes")
        offset = MetadataOffset(self.image.offset + 1)
        decoded = decode_transaction(encoded)
        applied = apply(self.image, offset, decoded)
        self.image = applied.image
        self.log.append((offset, decoded))
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
        return applied.result

    def write(self, *operations: Operation) -> TransactionResult:
        """A transaction by nobody in particular, as from a tool."""
        return self.apply(Transaction(operations=operations))

    def open_session(self, description: str, timeout_ms: int) -> SessionId:
        self._sessions += 1
        session_id = SessionId(f"session{self._sessions:9}".encode())
        opened = SessionOpened(
            session_id=session_id, timeout_ms=timeout_ms, description=description
        )
        self.write(Operation(records=(opened,)))
        return session_id

    def expire(self, session_id: SessionId, reason: str = "expired", *, tell: bool = True) -> None:
        """End a session; its client hears of it, or is cut off from the quorum if not ``tell``."""
        self.write(Operation(records=(SessionClosed(session_id=session_id, reason=reason),)))
        for client in self._clients:
            if client.session_id == session_id and tell:
                client.session_ended()
            elif client.session_id == session_id:
                client.cut_off = True

    def before_next(self, client: "LocalQuorumClient", happens: Callable[[], object]) -> None:
        """Something ``happens`` between the next transaction of ``client`` and its application."""
        self._before_next[client] = happens

    def lose_answers(self, client: "LocalQuorumClient", number: int) -> None:
        """The next transactions of ``client`` are applied, and it never learns of it."""
        self._answers_to_lose[client] = number

    def apply_for(self, client: "LocalQuorumClient", transaction: Transaction) -> TransactionResult:
        """Apply a client's transaction, with whatever is to go wrong."""
        happens = self._before_next.pop(client, None)
        if happens is not None:
            happens()
        result = self.apply(transaction)
        if self._answers_to_lose.get(client, 0) > 0:
            self._answers_to_lose[client] -= 1
            raise OutcomeUnknown("the answer was lost")
        return result

    async def grown(self) -> None:
        """Wait until something more is applied."""
        await self._grown.wait()


class LocalQuorumClient:
    """A client with a session of its own."""

    def __init__(self, quorum: LocalQuorum, *, description: str) -> None:
        self.session_id = NO_SESSION
        self.cluster_id = CLUSTER_ID
        self.last_keep_alive_ms = 0
        self.session_timeout_ms = SESSION_TIMEOUT_MS
        self.far_away_s = 0.0
        self.cut_off = False
        self.watch_may_go_on = asyncio.Event()
        self.watch_may_go_on.set()
        self._quorum = quorum
        self._description = description
        self._lost = False
        self._closed = False
        self._sequence = 0
        self._on_lost: list[Callable[[], None]] = []

    async def start(self, *, deadline_ms: int | None = None) -> None:
        self._require_quorum()
        self.session_id = self._quorum.open_session(
            self._description, timeout_ms=self.session_timeout_ms
        )
        self._lost = False

    def session_doubt_ms(self, _now_ms: int) -> int:
        return 0

    async def close(self) -> None:
        """Ends the session cleanly; nobody is told of a loss."""
        if not self._closed and self.session_id != NO_SESSION:
            self._closed = True
            self._quorum.expire(self.session_id, reason="closed")

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._on_lost.append(callback)

    def session_ended(self) -> None:
        """The quorum ended the session."""
        if not self._lost:
            self._lost = True
            if not self._closed:
                for callback in self._on_lost:
                    callback()

    async def renew_session(self) -> None:
        await self.start()

    async def transact(
        self,
        operations: Sequence[Operation],
        *,
        atomic: bool = True,
        timeout_ms: int = 30_000,
    ) -> TransactionResult:
        await async_let_time_pass(self._quorum.latency_s + self.far_away_s, "it is this far away")
        self._require_quorum()
        if self._lost:
            raise SessionLost(f"session {self.session_id!r} is closed")
        self._sequence += 1
        transaction = Transaction(
            operations=tuple(operations),
            atomic=atomic,
            client_id=self.session_id,
            sequence=self._sequence,
            low_water=self._sequence,
        )
        return self._quorum.apply_for(self, transaction)

    async def read_offset(self) -> MetadataOffset:
        self._require_quorum()
        return self._quorum.image.offset

    async def watch(self, from_offset: MetadataOffset) -> AsyncIterator[WatchEvent]:
        """Applied transactions from ``from_offset`` on, all that there are in one event."""
        position = max(0, from_offset - 1)
        while True:
            await self.watch_may_go_on.wait()
            transactions = self._quorum.log[position:]
            if transactions:
                position += len(transactions)
                yield TransactionsApplied(transactions, transactions[-1][0])
            else:
                await self._quorum.grown()

    async def metadata_version_max(self) -> int:
        self._require_quorum()
        return self._quorum.metadata_version_max

    async def relay_watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.WatchEvent, None]:
        self._require_quorum()
        image = self._quorum.image
        yield pb.WatchEvent(snapshot_chunk=b"".join(encode_snapshot(image)))
        yield pb.WatchEvent(snapshot_done=True, applied_offset=image.offset)

    async def status(self) -> pb.QuorumStatusResponse:
        self._require_quorum()
        return pb.QuorumStatusResponse(voter_id=1, leader_id=1, cluster_id=CLUSTER_ID, term=1)

    def _require_quorum(self) -> None:
        if not self._quorum.available or self.cut_off:
            raise QuorumUnavailable("no voter of the local quorum answers")
