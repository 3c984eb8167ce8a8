"""The channel to one broker: three queues of control requests, each with one request in flight
(C17).

LeaderAndIsr has a queue of its own, so it never waits behind the deletion of other partitions or a
large UpdateMetadata. A StopReplica waits for a LeaderAndIsr in flight that names the same
partition, because the newer request must arrive later.
"""

import asyncio
from collections.abc import Iterable, Sequence

from quorate.broker.controller.channels.control_request_queue import (
    ChannelContext,
    ControlRequestQueue,
    all_went_well,
)
from quorate.broker.controller.channels.control_requests import (
    EncodedControlRequest,
    StoppedReplica,
    assigned_among,
    hosted_by,
)
from quorate.broker.controller.channels.control_transport import ControlKind, ControlResponse
from quorate.broker.controller.channels.failed_leaderships import FailedLeaderships
from quorate.common.types import TopicIdPartition
from quorate.metadata_log.features import METADATA_FROM_LOG
from quorate.metadata_log.image import Broker
from quorate_proto.v1 import control_pb2


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
        if self._all and self._shared.images.image.inter_broker_protocol < METADATA_FROM_LOG:
            await self._acquire_slot()
        if not (self._all or self._some):
            return None
        image, own = self._shared.images.image, self._broker.broker_id
        everything, some = self._all, self._some
        self._all, self._some = False, set()
        if everything and image.inter_broker_protocol >= METADATA_FROM_LOG:
            self._begin(everything, some)
            return self._shared.requests.init_from_log(image)
        selection = hosted_by(image, own) if everything else assigned_among(image, own, some)
        if not (everything or selection):
            return None
        self._begin(everything, some)
        return self._shared.requests.leader_and_isr(image, selection, is_init=everything)

    def _begin(self, everything: bool, some: set[TopicIdPartition]) -> None:
        """Record what the request in flight is about."""
        self._taken = (everything, some)
        self._answered = asyncio.Event()

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
        if self._failed is None and all_went_well(response):
            return ()
        self._failed = self._failed or FailedLeaderships(self._broker.broker_id)
        image = self._shared.images.image
        everything = self._taken is not None and self._taken[0]
        unled = self._failed.record(image, response.partitions, about_all=everything)
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
        if self._full and self._shared.images.image.inter_broker_protocol < METADATA_FROM_LOG:
            await self._acquire_slot()
        image, requests = self._shared.images.image, self._shared.requests
        full, changed = self._taken = (self._full, self._changed)
        self._full, self._changed = False, None
        if image.inter_broker_protocol >= METADATA_FROM_LOG:
            return requests.metadata_from_log(image) if full or changed is not None else None
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
