"""What control and the controller need from the rest of a broker, as narrow as they use it."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Protocol

from broker.control.changes import A, Change, Q
from metadata_log.draft import Changes
from metadata_log.image import Image
from metadata_log.records import Operation, TransactionResult
from metadata_log.types import ControllerEpoch, MetadataOffset, SessionId
from quorate_proto.v1 import admin_pb2, control_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse, WatchEvent, WatchRequest
from quorum.metrics.family import Sample


class Images(Protocol):
    """The watched image; ``broker.metadata_follower`` is the real one."""

    @property
    def image(self) -> Image:
        """The newest image."""

    def subscribe(self, observer: Callable[[Image, Changes], None]) -> None:
        """Call ``observer`` on the loop after each applied transaction or snapshot."""

    async def wait_for(self, offset: MetadataOffset) -> Image:
        """The image, once ``offset`` is applied to it."""


class Transactor(Protocol):
    """Writes to the metadata log; ``quorum.client`` is the real one."""

    async def transact(
        self,
        operations: Sequence[Operation],
        *,
        atomic: bool = True,
        timeout_ms: int = 30_000,
    ) -> TransactionResult:
        """Commit ``operations``, exactly once.

        Raises:
            quorum.errors.QuorumError: not committed, or not known to be.
        """


class VoterVersions(Protocol):
    """Tells what the voters of the quorum can read."""

    async def metadata_version_max(self) -> int:
        """The newest metadata version that every voter can read.

        Raises:
            quorum.errors.QuorumUnavailable: one of them does not say.
        """


class ControllerQuorum(Transactor, VoterVersions, Protocol):
    """What a controller asks of the quorum."""


class Sessions(Transactor, VoterVersions, Protocol):
    """A session with the quorum, and writes bound to it."""

    @property
    def session_id(self) -> SessionId:
        """The session; another one after ``renew_session``."""

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once for each session that is lost."""

    async def renew_session(self) -> None:
        """Open a fresh session after a loss."""


class QuorumView(Protocol):
    """Tells the quorum's state, and shows its log."""

    cluster_id: str

    async def status(self) -> QuorumStatusResponse: ...

    async def read_offset(self) -> MetadataOffset:
        """An offset that covers everything acknowledged before this call.

        Raises:
            quorum.errors.QuorumUnavailable: no voter could tell.
        """

    def relay_watch(self, request: WatchRequest) -> AsyncGenerator[WatchEvent, None]:
        """What a voter sends for ``request``, as it comes.

        Raises:
            quorum.errors.QuorumUnavailable: no voter takes it.
        """


class ReplicaCommands(Protocol):
    """Carries out fenced control requests; ``broker.replication.manager`` is the real one."""

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow, as told; one outcome per partition."""

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Stop, and delete if told so; one outcome per partition."""


class Carrier(Protocol):
    """Carries changes out where they are asked for."""

    async def carry_out(self, change: Change[Q, A], request: Q) -> A:
        """NOT_CONTROLLER: it cannot, another might."""


class ActiveController(Carrier, Protocol):
    """The controller in office, for the services in front of it."""

    @property
    def controller_epoch(self) -> ControllerEpoch: ...

    def metrics(self) -> Iterable[Sample]:
        """How busy it is, and what clients have it do (Q9)."""

    @property
    def alerts(self) -> list[str]:
        """What needs an operator's eye (C18)."""

    async def controlled_shutdown(
        self, request: control_pb2.ControlledShutdownRequest
    ) -> control_pb2.ControlledShutdownResponse: ...

    async def report_replicas(
        self, request: control_pb2.ReportReplicasRequest
    ) -> control_pb2.ReportReplicasResponse: ...

    async def hand_over(
        self, request: admin_pb2.MoveControllerRequest
    ) -> admin_pb2.MoveControllerResponse:
        """Give the office to another broker (E5)."""

    def meet(self, controller_epoch: ControllerEpoch) -> None:
        """Somebody knows of a controller of that epoch: a newer one ends this tenure (E3)."""

    async def resign(self) -> None:
        """Give up the office; another broker takes it (E5)."""


def in_office(
    controller: ActiveController | None, controller_epoch: int
) -> ActiveController | None:
    """``controller``, if that is whom the sender of a request means (E3).

    One that means an earlier controller is to look again; one that knows of a later one has told
    this one that its time is over. 0: it does not say.
    """
    if controller is None or controller_epoch in (0, controller.controller_epoch):
        return controller
    controller.meet(ControllerEpoch(controller_epoch))
    return None


CurrentController = Callable[[], ActiveController | None]
"""The controller of this very process, None while another broker holds the office."""
