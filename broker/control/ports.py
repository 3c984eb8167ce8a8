"""Protocols of the quorum client and of rooms that lie above this one.

The product and the simulators each have a quorum client of their own. The replica manager and the
controller lie above the rooms that call them, so an import would run up.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Protocol

from quorate.broker.changes.table import A, Change, Q
from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Operation, TransactionResult
from quorate.quorum.client.quorum_client import WatchEvent
from quorate_proto.v1 import control_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse, WatchRequest
from quorate_proto.v1.quorum_pb2 import WatchEvent as EncodedWatchEvent


class Transactor(Protocol):
    """Writes to the metadata log; ``quorate.quorum.client.quorum_client`` implements it."""

    async def transact(
        self,
        operations: Sequence[Operation],
        *,
        atomic: bool = True,
        timeout_ms: int = 30_000,
    ) -> TransactionResult:
        """Commit ``operations``, exactly once.

        Raises:
            quorum.quorum_errors.QuorumError: not committed, or not known to be.
        """


class VoterVersions(Protocol):
    """Returns the metadata version that the voters of the quorum can read."""

    async def metadata_version_max(self) -> int:
        """Return the newest metadata version that every voter can read.

        Raises:
            quorum.quorum_errors.QuorumUnavailable: one of them does not say.
        """


class Sessions(Transactor, VoterVersions, Protocol):
    """A session with the quorum, and writes bound to it."""

    @property
    def session_id(self) -> SessionId:
        """The id of the session; ``renew_session`` changes it."""

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once for each session that is lost."""

    async def renew_session(self) -> None:
        """Open a fresh session after a loss."""


class QuorumView(Protocol):
    """Reads the quorum's state and its log."""

    cluster_id: str

    async def status(self) -> QuorumStatusResponse: ...

    async def read_offset(self) -> MetadataOffset:
        """Return an offset that covers everything acknowledged before this call.

        Raises:
            quorum.quorum_errors.QuorumUnavailable: no voter could tell.
        """

    def relay_watch(self, request: WatchRequest) -> AsyncGenerator[EncodedWatchEvent, None]:
        """Yield the events that a voter sends for ``request``, unchanged.

        Raises:
            quorum.quorum_errors.QuorumUnavailable: No voter accepts the request.
        """


class Quorum(Sessions, QuorumView, Protocol):
    """The whole client of the quorum, with a session. ``QuorumClient`` implements it."""

    session_timeout_ms: int
    """The time without a keep-alive after which the quorum ends the session."""

    @property
    def last_keep_alive_ms(self) -> int:
        """The time at which the last answered keep-alive was sent, in monotonic milliseconds."""

    def session_doubt_ms(self, now_ms: int) -> int:
        """Return for how long the session may have been over so far, in all such times together:
        no keep-alive was answered within its timeout."""

    async def start(self, *, deadline_ms: int | None = None) -> None:
        """Open a session.

        Raises:
            QuorumUnavailable: not within ``deadline_ms``.
        """

    def carry_mark(self, mark: Callable[[], int]) -> None:
        """Have keep-alives carry the mark of the log folder from now on (rule 8)."""

    async def close(self) -> None:
        """End the session."""

    def watch(self, from_offset: MetadataOffset) -> AsyncIterator[WatchEvent]:
        """Yield the events from ``from_offset`` on, in order, reconnecting by itself."""


class ReplicaCommands(Protocol):
    """Carries out fenced control requests; ``broker.replication.manager`` implements it."""

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow as the request says; return one outcome per partition."""

    async def apply_init(self, image: Image) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow as the image says, and set aside what it does not assign to this broker.

        Return the outcomes of the partitions that failed.
        """

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Stop replicas, delete those that the request says, and return one outcome each."""


class ChangeExecutor(Protocol):
    """Carries out changes: implemented by the ``Controller`` and by the ``Bridge``."""

    async def perform(self, change: Change[Q, A], request: Q) -> A:
        """Carry the change out. NOT_CONTROLLER in the answer means that another broker may be the
        controller."""
