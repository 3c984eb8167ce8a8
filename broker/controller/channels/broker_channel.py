"""The channel to one broker: three queues of control requests, each with one request in flight
(C17).

A queue holds the changes that are still to be sent, not requests. Changes that gather while a
request is in flight go out together as one request, built from the newest image. LeaderAndIsr has a
queue of its own, so it never waits behind the deletion of other partitions or a large
UpdateMetadata. A StopReplica waits for a LeaderAndIsr in flight that names the same partition,
because the newer request must arrive later.

A request without an answer is built and sent again until it is answered or the broker is gone, and
raises an alert meanwhile (C18).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final, Protocol

import grpc.aio

from quorate.broker.common.errors import error_name
from quorate.broker.controller.channels.control_requests import (
    ControlRequestBuilder,
    EncodedControlRequest,
    StoppedReplica,
    addressed,
    assigned_among,
    hosted_by,
)
from quorate.broker.controller.channels.failed_leaderships import FailedLeaderships, faults_among
from quorate.broker.controller.channels.request_slots import RequestSlot, RequestSlots
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.tenure import TenureGuard
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import ControllerEpoch, TopicIdPartition
from quorate.metadata_log.image import Broker
from quorate_proto.v1 import control_pb2, control_pb2_grpc, errors_pb2

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 50
"""The first pause after a failure. A broker that is just registering answers soon (B2)."""

RETRY_INTERVAL_MAX_MS: Final = 1_000

_UNREACHED: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""The status codes of calls that no broker has answered."""

ControlResponse = (
    control_pb2.LeaderAndIsrResponse
    | control_pb2.StopReplicaResponse
    | control_pb2.UpdateMetadataResponse
)


class ControlKind(Enum):
    """The three control requests. The value is the name of the gRPC method."""

    LEADER_AND_ISR = "LeaderAndIsr"
    STOP_REPLICA = "StopReplica"
    UPDATE_METADATA = "UpdateMetadata"


class NoControlResponse(Exception):
    """Raised when a control request got no answer in time, or no connection."""


class ControlTransport(Protocol):
    """Sends a control request to one broker and receives its answer."""

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        """Return the broker's answer.

        Raises:
            NoControlResponse: There is no answer within ``timeout_ms``.
        """


class ProbeTransport(Protocol):
    """Asks one broker whether it is reached."""

    async def probe(self, peer: Peer, tenure: ControllerTenure, timeout_ms: int) -> ControllerEpoch:
        """Return the newest controller epoch that the broker knows, or this one's if it does not
        say.

        Raises:
            NoControlResponse: There is no answer within ``timeout_ms``.
        """


class BrokerTransport(ControlTransport, ProbeTransport, Protocol):
    """Everything that a controller sends to brokers."""


_RESPONSES: dict[ControlKind, Any] = {
    ControlKind.LEADER_AND_ISR: control_pb2.LeaderAndIsrResponse,
    ControlKind.STOP_REPLICA: control_pb2.StopReplicaResponse,
    ControlKind.UPDATE_METADATA: control_pb2.UpdateMetadataResponse,
}


class GrpcControlTransport:
    """Sends control requests over gRPC. A request is already encoded and is sent as it is."""

    def __init__(self, channels: PeerChannels) -> None:
        self._channels = channels

    async def send(
        self, peer: Peer, kind: ControlKind, body: bytes, timeout_ms: int
    ) -> ControlResponse:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, Any]
        call = self._channels.get(peer).unary_unary(
            f"/quorate.v1.BrokerControl/{kind.value}",
            request_serializer=None,
            response_deserializer=_RESPONSES[kind].FromString,
        )
        try:
            response: ControlResponse = await call(body, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            raise NoControlResponse(f"{error.code().name}: {error.details()}") from error
        return response

    async def probe(self, peer: Peer, tenure: ControllerTenure, timeout_ms: int) -> ControllerEpoch:
        stub = control_pb2_grpc.BrokerControlStub(self._channels.get(peer))
        request = control_pb2.ProbeRequest(
            controller_id=tenure.controller_id, controller_epoch=tenure.controller_epoch
        )
        try:
            response = await stub.Probe(request, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNREACHED:
                raise NoControlResponse(f"{error.code().name}: {error.details()}") from error
            return tenure.controller_epoch  # A broker that refuses a probe is reached.
        return ControllerEpoch(response.controller_epoch)


FULL_REQUESTS_AT_ONCE: Final = {
    ControlKind.LEADER_AND_ISR: 8,
    ControlKind.UPDATE_METADATA: 2,
}
"""The number of requests about all partitions or topics that are built or in flight at a time."""


FailedElections = Callable[[Broker, Sequence[TopicIdPartition]], None]
"""Is told of the partitions that a broker was to lead and says that it cannot."""


class ChannelContext:
    """The objects that the queues to all brokers share."""

    def __init__(
        self,
        *,
        requests: ControlRequestBuilder,
        transport: ControlTransport,
        images: MetadataFollower,
        guard: TenureGuard,
        timeout_ms: int,
        on_failed_elections: FailedElections = lambda _broker, _tips: None,
    ) -> None:
        self.requests = requests
        self.transport = transport
        self.images = images
        self.guard = guard
        self.timeout_ms = timeout_ms
        self.on_failed_elections = on_failed_elections
        self.alerts: dict[tuple[int, ControlKind], str] = {}
        self.slots = {
            kind: RequestSlots(at_once) for kind, at_once in FULL_REQUESTS_AT_ONCE.items()
        }


class ControlRequestQueue(ABC):
    """One kind of request to one broker.

    ``_enqueued_count`` counts the changes that were enqueued, and ``_answered_count`` how many of
    them the broker has answered. ``drained`` waits until all that were enqueued so far are
    answered.
    """

    kind: ControlKind

    def __init__(self, shared: ChannelContext, broker: Broker) -> None:
        self._shared = shared
        self._broker = broker
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._enqueued_count = 0
        self._answered_count = 0
        self._closed = False
        self._slot: RequestSlot | None = None
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def next_request(self) -> EncodedControlRequest | None:
        """Return the next request, built from the newest image, or None if there is nothing to
        send."""

    @abstractmethod
    def requeue(self) -> None:
        """Enqueue the changes of the last request again, because it failed."""

    def start(self) -> None:
        name = f"{self.kind.value}-to-{self._broker.broker_id}"
        self._task = asyncio.create_task(self._run(), name=name)

    def close(self) -> None:
        """Stop at once, and resume everybody who waits for the queue."""
        self._closed = True
        self._release_slot()
        if self._task is not None:
            self._task.cancel()
        self._shared.alerts.pop((self._broker.broker_id, self.kind), None)
        self._progress.set()

    async def drained(self) -> None:
        """Wait until all changes that were enqueued so far are answered, or the queue is closed."""
        wanted = self._enqueued_count
        while self._answered_count < wanted and not self._closed:
            self._progress.clear()
            await self._progress.wait()

    def _enqueue(self) -> None:
        self._enqueued_count += 1
        self._wake.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            enqueued = self._enqueued_count
            while (request := await self.next_request()) is not None:
                delivered = await self._deliver(request)
                self._release_slot()
                if delivered:
                    failures = 0
                else:
                    self.requeue()
                    failures += 1
                    await asyncio.sleep(self._pause_s(failures))
                    enqueued = self._enqueued_count
            self._answered_count = max(self._answered_count, enqueued)
            self._progress.set()

    async def _acquire_slot(self) -> None:
        """Wait for a slot before a request about all partitions or topics is built."""
        self._slot = await self._shared.slots[self.kind].acquire()

    def _release_slot(self) -> None:
        if self._slot is not None:
            self._slot.end()
            self._slot = None

    @staticmethod
    def _pause_s(failures: int) -> float:
        return (
            float(min(RETRY_INTERVAL_MS * 2 ** min(failures - 1, 10), RETRY_INTERVAL_MAX_MS)) / 1000
        )

    async def _deliver(self, request: EncodedControlRequest) -> bool:
        """Send a request. Return whether the broker has answered it, so that it need not be sent
        again."""
        if not self._shared.guard.may_act():
            return False
        try:
            response = await self._shared.transport.send(
                Peer.of(self._broker),
                self.kind,
                addressed(request, self._broker),
                self._shared.timeout_ms,
            )
            return self._read(response)
        except NoControlResponse as error:
            self._alert(f"got no answer: {error}")
        except Exception as error:  # if this task ended, the broker would get no more requests
            log.exception("%s to broker %d failed", self.kind.value, self._broker.broker_id)
            self._alert(f"failed: {error!r}")
        return False

    def _read(self, response: ControlResponse) -> bool:
        epoch = ControllerEpoch(response.controller_epoch)
        if self._shared.guard.observe_controller_epoch(epoch):
            return False
        if response.error_code == errors_pb2.STALE_BROKER_EPOCH:
            log.info(
                "%s for broker %d, epoch %d: it does not know its epoch yet, or is another one",
                self.kind.value,
                self._broker.broker_id,
                self._broker.epoch,
            )
            return False
        if response.error_code != errors_pb2.NONE:
            self._alert(f"was refused: {error_name(response.error_code)}")
            return False
        self._read_outcomes(response)
        return True

    def _read_outcomes(self, response: ControlResponse) -> None:
        faults = self._faults(response)
        if faults:
            first = faults[0]
            self._alert(
                f"failed for {len(faults)} partitions, {first.topic}-{first.partition} among "
                f"them: {error_name(first.error_code)}"
            )
        else:
            self._shared.alerts.pop((self._broker.broker_id, self.kind), None)

    def _faults(self, response: ControlResponse) -> Sequence[control_pb2.PartitionOutcome]:
        """Return the outcomes of partitions that need an operator."""
        if isinstance(response, control_pb2.UpdateMetadataResponse) or _all_went_well(response):
            return ()
        return faults_among(response.partitions)

    def _alert(self, what: str) -> None:
        text = f"{self.kind.value} to broker {self._broker.broker_id} {what}"
        key = (self._broker.broker_id, self.kind)
        if self._shared.alerts.get(key) != text:
            log.warning("%s", text)
        self._shared.alerts[key] = text


def _all_went_well(
    response: control_pb2.LeaderAndIsrResponse | control_pb2.StopReplicaResponse,
) -> bool:
    return not any(outcome.error_code for outcome in response.partitions)


class LeaderAndIsrQueue(ControlRequestQueue):
    """The queue of LeaderAndIsr: the partitions whose newest leadership the broker has not
    received."""

    kind = ControlKind.LEADER_AND_ISR

    def __init__(self, shared: ChannelContext, broker: Broker) -> None:
        super().__init__(shared, broker)
        self._all = False
        self._some: set[TopicIdPartition] = set()
        self._taken: tuple[bool, set[TopicIdPartition]] | None = None
        self._answered = asyncio.Event()
        self._answered.set()
        self._failed: FailedLeaderships | None = None

    def enqueue(self, tips: Iterable[TopicIdPartition]) -> None:
        """Enqueue partitions whose leadership changed."""
        self._some.update(tips)
        self._enqueue()

    def enqueue_all(self) -> None:
        """Enqueue every partition that the broker hosts, as an INIT: the broker drops the
        partitions that an INIT lacks (C7)."""
        self._all = True
        self._enqueue()

    def forget(self, tips: Iterable[TopicIdPartition]) -> None:
        """Remove these partitions from the queue, because they are to be stopped."""
        self._some.difference_update(tips)

    async def wait_for_response(self, tips: Iterable[TopicIdPartition]) -> None:
        """Wait while a request is in flight that names any of ``tips``."""
        while self._taken is not None and (self._taken[0] or not self._taken[1].isdisjoint(tips)):
            await self._answered.wait()

    async def next_request(self) -> EncodedControlRequest | None:
        self._taken = None
        self._answered.set()
        if self._all:
            await self._acquire_slot()
        if not (self._all or self._some):
            return None
        image, own = self._shared.images.image, self._broker.broker_id
        everything, some = self._all, self._some
        self._all, self._some = False, set()
        selection = hosted_by(image, own) if everything else assigned_among(image, own, some)
        if not (everything or selection):
            return None
        self._taken = (everything, some)
        self._answered = asyncio.Event()
        return self._shared.requests.leader_and_isr(image, selection, is_init=everything)

    def requeue(self) -> None:
        if self._taken is not None:
            everything, some = self._taken
            self._all = self._all or everything
            self._some |= some

    def _faults(self, response: ControlResponse) -> Sequence[control_pb2.PartitionOutcome]:
        """Return the faults of this response, and those of earlier ones that still hold.

        The election of a leader that cannot lead has failed: another one is to be elected.
        """
        assert isinstance(response, control_pb2.LeaderAndIsrResponse)
        if self._failed is None and _all_went_well(response):
            return ()
        self._failed = self._failed or FailedLeaderships(self._broker.broker_id)
        unled = self._failed.record(self._shared.images.image, response.partitions)
        if unled:
            self._shared.on_failed_elections(self._broker, unled)
        return self._failed.held


class StopReplicaQueue(ControlRequestQueue):
    """The queue of StopReplica: the replicas that the broker is to stop."""

    kind = ControlKind.STOP_REPLICA

    def __init__(
        self, shared: ChannelContext, broker: Broker, leadership: LeaderAndIsrQueue
    ) -> None:
        super().__init__(shared, broker)
        self._leadership = leadership
        self._stops: dict[TopicIdPartition, StoppedReplica] = {}
        self._taken: dict[TopicIdPartition, StoppedReplica] = {}

    def enqueue(self, stops: Iterable[StoppedReplica]) -> None:
        """Enqueue replicas that are to be stopped."""
        added = {stop.tip: stop for stop in stops}
        self._leadership.forget(added)
        self._stops.update(added)
        self._enqueue()

    async def next_request(self) -> EncodedControlRequest | None:
        self._taken, self._stops = self._stops, {}
        if not self._taken:
            return None
        await self._leadership.wait_for_response(self._taken)
        return self._shared.requests.stop_replica(self._shared.images.image, self._taken.values())

    def requeue(self) -> None:
        self._stops = {**self._taken, **self._stops}


class UpdateMetadataQueue(ControlRequestQueue):
    """The queue of UpdateMetadata: all metadata, or the topics that changed since the last
    request."""

    kind = ControlKind.UPDATE_METADATA

    def __init__(self, shared: ChannelContext, broker: Broker) -> None:
        super().__init__(shared, broker)
        self._full = False
        self._changed: frozenset[str] | None = None
        """The topics to send. It is empty if only the brokers changed, and None if nothing did."""
        self._taken: tuple[bool, frozenset[str] | None] = (False, None)

    def enqueue_all(self) -> None:
        """Enqueue all metadata."""
        self._full = True
        self._enqueue()

    def enqueue(self, changed: frozenset[str]) -> None:
        """Enqueue topics that changed or were deleted. An empty set means that brokers joined or
        left."""
        self._changed = changed if self._changed is None else self._changed | changed
        self._enqueue()

    async def next_request(self) -> EncodedControlRequest | None:
        if self._full:
            await self._acquire_slot()
        image, requests = self._shared.images.image, self._shared.requests
        full, changed = self._taken = (self._full, self._changed)
        self._full, self._changed = False, None
        if full:
            return requests.full_metadata(image)
        return None if changed is None else requests.update_metadata(image, changed)

    def requeue(self) -> None:
        full, changed = self._taken
        self._full = self._full or full
        if changed is not None:
            self._changed = changed | (self._changed or frozenset())


class BrokerChannel:
    """The three queues to one incarnation of one broker."""

    def __init__(self, shared: ChannelContext, broker: Broker) -> None:
        self.broker = broker
        self.leadership = LeaderAndIsrQueue(shared, broker)
        self.stops = StopReplicaQueue(shared, broker, self.leadership)
        self.metadata = UpdateMetadataQueue(shared, broker)
        self.has_published_leadership = False

    def start(self) -> None:
        for queue in (self.leadership, self.stops, self.metadata):
            queue.start()

    def close(self) -> None:
        for queue in (self.leadership, self.stops, self.metadata):
            queue.close()

    def begin_leadership(self) -> None:
        """Send an INIT, because the broker's arrival has been processed. Changes follow it."""
        self.has_published_leadership = True
        self.leadership.enqueue_all()

    async def drained(self) -> None:
        """Wait until the leadership and metadata that were enqueued so far are answered."""
        await self.leadership.drained()
        await self.metadata.drained()
