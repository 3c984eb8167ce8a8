"""One queue of control requests to one broker, with one request in flight.

A queue holds the changes that are still to be sent, not requests. Changes that gather while a
request is in flight go out together as one request, built from the newest image.

A request without an answer is built and sent again until it is answered or the broker is gone, and
raises an alert meanwhile (C18).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.controller.channels.control_requests import (
    ControlRequestBuilder,
    EncodedControlRequest,
    addressed,
)
from quorate.broker.controller.channels.control_transport import (
    ControlKind,
    ControlResponse,
    ControlTransport,
    NoControlResponse,
)
from quorate.broker.controller.channels.failed_leaderships import faults_among
from quorate.broker.controller.channels.request_slots import RequestSlot, RequestSlots
from quorate.broker.controller.tenure import TenureGuard
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.rpc.peer_channels import Peer
from quorate.common.types import ControllerEpoch, TopicIdPartition
from quorate.metadata_log.image import Broker
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 50
"""The first pause after a failure. A broker that is just registering answers soon (B2)."""

RETRY_INTERVAL_MAX_MS: Final = 1_000

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
        if isinstance(response, control_pb2.UpdateMetadataResponse) or all_went_well(response):
            return ()
        return faults_among(response.partitions)

    def _alert(self, what: str) -> None:
        text = f"{self.kind.value} to broker {self._broker.broker_id} {what}"
        key = (self._broker.broker_id, self.kind)
        if self._shared.alerts.get(key) != text:
            log.warning("%s", text)
        self._shared.alerts[key] = text


def all_went_well(
    response: control_pb2.LeaderAndIsrResponse | control_pb2.StopReplicaResponse,
) -> bool:
    return not any(outcome.error_code for outcome in response.partitions)
