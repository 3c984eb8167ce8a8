"""A broker tells the controller which of its replicas no ISR should rely on, until that is over.

Those of a full disk can take nothing in; a damaged one cannot give out all that it took in. The
controller takes them out of the ISRs that have others left (``controller.broker_changes``). It
remembers nothing for long, and the next one nothing at all: so the report is repeated.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.control.controller_duty import ControllerDuty
from broker.control.ports import Images
from broker.errors import error_name
from metadata_log.types import BrokerEpoch, BrokerId, TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

REPEAT_INTERVAL_MS: Final = 5_000
RETRY_INTERVAL_MS: Final = 200
TIMEOUT_MS: Final = 10_000


class Trouble(NamedTuple):
    """What there is to report."""

    is_full: bool
    damaged: Sequence[TopicIdPartition]


class ReplicaReporter:
    """Reports ``trouble`` once it is told to look, and again until there is none."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        images: Images,
        duty: ControllerDuty,
        trouble: Callable[[], Trouble],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._images = images
        self._duty = duty
        self._trouble = trouble
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="replica-reports")
        self.look()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look(self) -> None:
        """There may be something new to report, or an end of it."""
        self._wake.set()

    async def _run(self) -> None:
        pause_ms: int | None = None
        was_in_trouble = False
        while True:
            try:
                async with asyncio.timeout(None if pause_ms is None else pause_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            trouble = self._trouble()
            is_in_trouble = trouble.is_full or bool(trouble.damaged)
            pause_ms = None
            if is_in_trouble or was_in_trouble:
                was_told = await self._report(trouble)
                pause_ms = REPEAT_INTERVAL_MS if was_told else RETRY_INTERVAL_MS
                was_in_trouble = is_in_trouble or not was_told

    async def _report(self, trouble: Trouble) -> bool:
        """Whether the controller has dealt with it."""
        epoch = self._broker_epoch()
        if epoch is None:
            return False
        request = control_pb2.ReportReplicasRequest(
            broker_id=self._broker_id,
            broker_epoch=epoch,
            controller_epoch=self._images.image.controller_epoch,
            is_full=trouble.is_full,
            damaged=[
                control_pb2.DamagedReplica(topic_id=tip.topic_id, partition=tip.partition)
                for tip in trouble.damaged
            ],
        )
        answer = await self._duty.ask(
            lambda controller: controller.report_replicas(request),
            lambda stub: stub.ReportReplicas(request),
            TIMEOUT_MS / 1000,
        )
        if answer is None:
            return False
        if answer.error_code != errors_pb2.NONE:
            log.info("report of replicas: %s", error_name(answer.error_code))
            return False
        self._say(trouble, answer.remaining_partitions)
        return True

    def _say(self, trouble: Trouble, remaining: int) -> None:
        what = "a full disk" if trouble.is_full else f"{len(trouble.damaged)} damaged logs"
        said = (
            f"the controller knows of {what}; {remaining} partitions have nobody else in their ISR"
            if trouble.is_full or trouble.damaged
            else "the controller knows that the replicas here are of use again"
        )
        if said != self._said:
            log.info("%s", said)
        self._said = said
