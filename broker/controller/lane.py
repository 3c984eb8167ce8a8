"""A lane to one broker: one kind of control request, one at a time, until it is answered.

A request without an answer is built and sent again until it is answered or the broker is gone, and
raises an alert meanwhile (C18).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from broker.controller.control_requests import ControlRequests, Encoded, addressed
from broker.controller.transport import ControlKind, ControlResponse, ControlTransport, Unanswered
from broker.controller.turns import Turn, Turns
from broker.errors import error_name
from broker.peers import Peer
from metadata_log.image import Broker, Image
from metadata_log.types import ControllerEpoch
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 50
"""First pause after a failure; a broker that is just registering answers soon (B2)."""

RETRY_INTERVAL_MAX_MS: Final = 1_000

_FAULTS: Final = frozenset({errors_pb2.KAFKA_STORAGE_ERROR, errors_pb2.UNKNOWN_SERVER_ERROR})
"""Refusals of single partitions that need an operator; others mean that newer word got there."""


ABOUT_EVERYTHING_AT_ONCE: Final = {
    ControlKind.LEADER_AND_ISR: 8,
    ControlKind.UPDATE_METADATA: 2,
}
"""Requests about everything that are built or on their way at a time."""


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
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self.controller_epoch = controller_epoch
        self.requests = requests
        self.transport = transport
        self.image = image
        self.timeout_ms = timeout_ms
        self.on_deposed = on_deposed
        self.may_act = may_act
        self.alerts: dict[tuple[int, ControlKind], str] = {}
        self.turns = {kind: Turns(at_once) for kind, at_once in ABOUT_EVERYTHING_AT_ONCE.items()}


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
        self._turn: Turn | None = None
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
        self._end_turn()
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
                delivered = await self._deliver(request)
                self._end_turn()
                if delivered:
                    failures = 0
                else:
                    self.take_back()
                    failures += 1
                    await asyncio.sleep(self._pause_s(failures))
                    asked = self._requested
            self._told = max(self._told, asked)
            self._progress.set()

    async def _take_turn(self) -> None:
        """Before a request about everything is built: it is held until it is answered."""
        self._turn = await self._shared.turns[self.kind].take()

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()
            self._turn = None

    @staticmethod
    def _pause_s(failures: int) -> float:
        return (
            float(min(RETRY_INTERVAL_MS * 2 ** min(failures - 1, 10), RETRY_INTERVAL_MAX_MS)) / 1000
        )

    async def _deliver(self, request: Encoded) -> bool:
        """Whether the broker has answered, so that the request need not be sent again."""
        if not self._shared.may_act():
            return False
        try:
            response = await self._shared.transport.send(
                Peer.of(self._broker),
                self.kind,
                addressed(request, self._broker),
                self._shared.timeout_ms,
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
