"""Reports replicas of this broker that no ISR should rely on to the controller, until the trouble
is over.

Replicas on a full disk cannot append, and a damaged one cannot return all that was appended. The
controller removes them from the ISRs that have other members (``controller.broker_changes``). One
in a log directory that has failed is offline: the controller never elects it, and its partition has
no leader where nobody else could lead. A controller forgets a report after a while, and its
successor does not have it, so the report is repeated.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import error_name
from quorate.broker.control.controller_client import ControllerClient
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.common.types import TopicIdPartition
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)

REPEAT_INTERVAL_MS: Final = 5_000
RETRY_INTERVAL_MS: Final = 200
TIMEOUT_MS: Final = 10_000


class ReplicaTroubles(NamedTuple):
    """The troubles of the replicas of one broker."""

    is_full: bool
    damaged: Sequence[TopicIdPartition]
    """The replicas in an ISR that cannot do what it relies on: damaged, offline, or on a full disk
    while other disks of the broker have room."""
    offline_directories: Sequence[str] = ()
    offline: Sequence[TopicIdPartition] = ()
    """All replicas in these directories, in an ISR or not. Controllers of earlier releases know of
    those alone that are in ``damaged``, too."""

    @property
    def are_there(self) -> bool:
        """Whether the controller must hear of them again and again."""
        return bool(self.is_full or self.damaged or self.offline_directories)


class TroubleSource(Protocol):
    """Knows the troubles of the replicas. ``replication.log_directory_monitor`` implements it.

    The room of the replicas lies above this one, so this is a protocol.
    """

    changed: asyncio.Event
    """Set when there may be a new trouble to report, or the end of one."""

    def current(self) -> ReplicaTroubles:
        """Return the current troubles."""


class ReplicaReporter:
    """Reports troubles whenever they change, and repeats the report until there are none."""

    def __init__(
        self,
        identity: BrokerIdentity,
        *,
        images: MetadataFollower,
        controller: ControllerClient,
        troubles: TroubleSource,
    ) -> None:
        self._identity = identity
        self._images = images
        self._controller = controller
        self._troubles = troubles
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="replica-reports")
        self._troubles.changed.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_ms: int | None = None
        was_in_trouble = False
        while True:
            try:
                async with asyncio.timeout(None if pause_ms is None else pause_ms / 1000):
                    await self._troubles.changed.wait()
            except TimeoutError:
                pass
            self._troubles.changed.clear()
            trouble = self._troubles.current()
            is_in_trouble = trouble.are_there
            pause_ms = None
            if is_in_trouble or was_in_trouble:
                was_told = await self._report(trouble)
                pause_ms = REPEAT_INTERVAL_MS if was_told else RETRY_INTERVAL_MS
                was_in_trouble = is_in_trouble or not was_told

    async def _report(self, trouble: ReplicaTroubles) -> bool:
        """Report, and return whether the controller has handled it."""
        epoch = self._identity.epoch
        if epoch is None:
            return False
        request = control_pb2.ReportReplicasRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=epoch,
            controller_epoch=self._images.image.controller_epoch,
            is_full=trouble.is_full,
            damaged=_named(trouble.damaged),
            offline_directories=trouble.offline_directories,
            offline=_named(trouble.offline),
        )
        answer = await self._controller.report_replicas(request, TIMEOUT_MS / 1000)
        if answer is None:
            return False
        if answer.error_code != errors_pb2.NONE:
            log.info("report of replicas: %s", error_name(answer.error_code))
            return False
        self._say(trouble, answer.remaining_partitions)
        return True

    def _say(self, trouble: ReplicaTroubles, remaining: int) -> None:
        what = "a full disk" if trouble.is_full else f"{len(trouble.damaged)} unfit replicas"
        if trouble.offline_directories:
            what += f" and {len(trouble.offline_directories)} offline log directories"
        said = (
            f"the controller knows of {what}; {remaining} partitions have nobody else in their ISR"
            if trouble.are_there
            else "the controller knows that the replicas here are of use again"
        )
        if said != self._said:
            log.info("%s", said)
        self._said = said


def _named(tips: Sequence[TopicIdPartition]) -> list[control_pb2.DamagedReplica]:
    return [
        control_pb2.DamagedReplica(topic_id=tip.topic_id, partition=tip.partition) for tip in tips
    ]
