"""The way of control requests to one broker: three lanes, each one request at a time (C17).

A lane holds what is still to be told, not requests: what piles up while a request is under way
goes out as one, built from the newest image. Leadership has a lane of its own, so it never waits
behind the deletion of other partitions or a large UpdateMetadata. A deletion waits for a leadership
request that is under way and names the same partition: the later word must arrive later.

A request without an answer is built and sent again until it is answered or the broker is gone, and
raises an alert meanwhile (C18).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from broker.controller.control_requests import (
    ControlRequests,
    Encoded,
    Selection,
    StoppedReplica,
    hosted_by,
)
from broker.controller.transport import ControlKind, ControlResponse, ControlTransport, Unanswered
from broker.errors import error_name
from metadata_log.image import Broker, Image
from metadata_log.types import ControllerEpoch, TopicId, TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 50
"""First pause after a failure; a broker that is just registering answers soon (B2)."""

RETRY_INTERVAL_MAX_MS: Final = 1_000

DELTAS_MAX: Final = 64
"""A broker this many metadata updates behind gets one full one instead."""

_FAULTS: Final = frozenset({errors_pb2.KAFKA_STORAGE_ERROR, errors_pb2.UNKNOWN_SERVER_ERROR})
"""Refusals of single partitions that need an operator; others mean that newer word got there."""


class Correspondence:
    """What the lanes to all brokers share: who writes, with what, and whom to tell of trouble."""

    def __init__(
        self,
        *,
        controller_epoch: ControllerEpoch,
        requests: ControlRequests,
        transport: ControlTransport,
        image: Callable[[], Image],
        timeout_ms: int,
        on_deposed: Callable[[ControllerEpoch], None],
    ) -> None:
        self.controller_epoch = controller_epoch
        self.requests = requests
        self.transport = transport
        self.image = image
        self.timeout_ms = timeout_ms
        self.on_deposed = on_deposed
        self.alerts: dict[tuple[int, ControlKind], str] = {}


class Lane(ABC):
    """One kind of request to one broker.

    ``requested`` and ``told`` count what was asked of the lane and how much of it was answered:
    ``drained`` waits for all that was asked so far.
    """

    kind: ControlKind

    def __init__(self, shared: Correspondence, broker: Broker) -> None:
        self._shared = shared
        self._broker = broker
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._requested = 0
        self._told = 0
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def take(self) -> Encoded | None:
        """The next request, from the newest image; None: nothing to tell."""

    @abstractmethod
    def take_back(self) -> None:
        """The request last taken failed: what it told is still to be told."""

    def start(self) -> None:
        name = f"{self.kind.value}-to-{self._broker.broker_id}"
        self._task = asyncio.create_task(self._run(), name=name)

    def close(self) -> None:
        """Stop at once; who waits for the lane is released."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._shared.alerts.pop((self._broker.broker_id, self.kind), None)
        self._progress.set()

    async def drained(self) -> None:
        """Wait until all that was asked for so far is answered, or the lane is closed."""
        wanted = self._requested
        while self._told < wanted and not self._closed:
            self._progress.clear()
            await self._progress.wait()

    def _ask(self) -> None:
        self._requested += 1
        self._wake.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked = self._requested
            while (request := await self.take()) is not None:
                if await self._deliver(request):
                    failures = 0
                else:
                    self.take_back()
                    failures += 1
                    await asyncio.sleep(self._pause_s(failures))
                    asked = self._requested
            self._told = max(self._told, asked)
            self._progress.set()

    @staticmethod
    def _pause_s(failures: int) -> float:
        return (
            float(min(RETRY_INTERVAL_MS * 2 ** min(failures - 1, 10), RETRY_INTERVAL_MAX_MS)) / 1000
        )

    async def _deliver(self, request: Encoded) -> bool:
        """Whether the broker has answered, so that the request need not be sent again."""
        try:
            response = await self._shared.transport.send(
                self._broker.grpc, self.kind, request.body, self._shared.timeout_ms
            )
            return self._read(response)
        except Unanswered as error:
            self._alert(f"got no answer: {error}")
        except Exception as error:  # a lane that ended here would leave its broker untold for ever
            log.exception("%s to broker %d failed", self.kind.value, self._broker.broker_id)
            self._alert(f"failed: {error!r}")
        return False

    def _read(self, response: ControlResponse) -> bool:
        epoch = ControllerEpoch(response.controller_epoch)
        if epoch > self._shared.controller_epoch:
            self._shared.on_deposed(epoch)
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
        outcomes = (
            () if isinstance(response, control_pb2.UpdateMetadataResponse) else response.partitions
        )
        faults = [outcome for outcome in outcomes if outcome.error_code in _FAULTS]
        if faults:
            first = faults[0]
            self._alert(
                f"failed for {len(faults)} partitions, {first.topic}-{first.partition} among "
                f"them: {error_name(first.error_code)}"
            )
        else:
            self._shared.alerts.pop((self._broker.broker_id, self.kind), None)

    def _alert(self, what: str) -> None:
        text = f"{self.kind.value} to broker {self._broker.broker_id} {what}"
        key = (self._broker.broker_id, self.kind)
        if self._shared.alerts.get(key) != text:
            log.warning("%s", text)
        self._shared.alerts[key] = text


class LeadershipLane(Lane):
    """LeaderAndIsr: which partitions the broker has not been told the newest leadership of."""

    kind = ControlKind.LEADER_AND_ISR

    def __init__(self, shared: Correspondence, broker: Broker) -> None:
        super().__init__(shared, broker)
        self._is_init = False
        self._all = False
        self._some: set[TopicIdPartition] = set()
        self._taken: tuple[bool, bool, set[TopicIdPartition]] | None = None
        self._answered = asyncio.Event()
        self._answered.set()

    def tell(self, tips: Iterable[TopicIdPartition]) -> None:
        """Leadership of these changed."""
        self._some.update(tips)
        self._ask()

    def tell_all(self, *, is_init: bool) -> None:
        """Tell of every partition the broker hosts; ``is_init``: as a new controller (C7)."""
        self._all = True
        self._is_init = self._is_init or is_init
        self._ask()

    def forget(self, tips: Iterable[TopicIdPartition]) -> None:
        """These are to be stopped: leadership not yet told is void."""
        self._some.difference_update(tips)

    async def until_answered(self, tips: Iterable[TopicIdPartition]) -> None:
        """Wait while a request is under way that names any of ``tips``."""
        while self._taken is not None and (self._taken[1] or not self._taken[2].isdisjoint(tips)):
            await self._answered.wait()

    async def take(self) -> Encoded | None:
        self._taken = None
        self._answered.set()
        if not (self._all or self._some):
            return None
        image = self._shared.image()
        self._taken = (self._is_init, self._all, self._some)
        self._answered = asyncio.Event()
        is_init, everything, some = self._taken
        self._is_init, self._all, self._some = False, False, set()
        selection = hosted_by(image, self._broker.broker_id) if everything else _selection(some)
        return self._shared.requests.leader_and_isr(image, selection, is_init=is_init)

    def take_back(self) -> None:
        if self._taken is not None:
            is_init, everything, some = self._taken
            self._is_init = self._is_init or is_init
            self._all = self._all or everything
            self._some |= some


class StopLane(Lane):
    """StopReplica: replicas the broker is to stop."""

    kind = ControlKind.STOP_REPLICA

    def __init__(self, shared: Correspondence, broker: Broker, leadership: LeadershipLane) -> None:
        super().__init__(shared, broker)
        self._leadership = leadership
        self._stops: dict[TopicIdPartition, StoppedReplica] = {}
        self._taken: dict[TopicIdPartition, StoppedReplica] = {}

    def tell(self, stops: Iterable[StoppedReplica]) -> None:
        """Stop these replicas."""
        added = {stop.tip: stop for stop in stops}
        self._leadership.forget(added)
        self._stops.update(added)
        self._ask()

    async def take(self) -> Encoded | None:
        self._taken, self._stops = self._stops, {}
        if not self._taken:
            return None
        await self._leadership.until_answered(self._taken)
        return self._shared.requests.stop_replica(self._shared.image(), self._taken.values())

    def take_back(self) -> None:
        self._stops = {**self._taken, **self._stops}


class MetadataLane(Lane):
    """UpdateMetadata: changes in order, or everything where the broker has missed some."""

    kind = ControlKind.UPDATE_METADATA

    def __init__(self, shared: Correspondence, broker: Broker) -> None:
        super().__init__(shared, broker)
        self._full = False
        self._deltas: deque[Encoded] = deque()

    def tell_all(self) -> None:
        """Tell of everything."""
        self._full = True
        self._ask()

    def tell(self, delta: Encoded) -> None:
        """Pass on a change, made from the newest image; the bytes are shared by all brokers."""
        if len(self._deltas) >= DELTAS_MAX:
            self._full = True
        if not self._full:
            self._deltas.append(delta)
        self._ask()

    async def take(self) -> Encoded | None:
        if self._full:
            self._full = False
            self._deltas.clear()
            return self._shared.requests.full_metadata(self._shared.image())
        return self._deltas.popleft() if self._deltas else None

    def take_back(self) -> None:
        self._full = True


class BrokerChannel:
    """All lanes to one incarnation of one broker."""

    def __init__(self, shared: Correspondence, broker: Broker) -> None:
        self.broker = broker
        self.leadership = LeadershipLane(shared, broker)
        self.stops = StopLane(shared, broker, self.leadership)
        self.metadata = MetadataLane(shared, broker)
        self.told_leadership = False

    def start(self) -> None:
        for lane in (self.leadership, self.stops, self.metadata):
            lane.start()

    def close(self) -> None:
        for lane in (self.leadership, self.stops, self.metadata):
            lane.close()

    async def drained(self) -> None:
        """Wait until leadership and metadata asked for so far are answered."""
        await self.leadership.drained()
        await self.metadata.drained()


def _selection(tips: Iterable[TopicIdPartition]) -> Selection:
    numbers: dict[TopicId, list[int]] = {}
    for tip in tips:
        numbers.setdefault(tip.topic_id, []).append(tip.partition)
    return {topic_id: tuple(sorted(found)) for topic_id, found in numbers.items()}
