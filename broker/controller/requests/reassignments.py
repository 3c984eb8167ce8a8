"""Reassignments: begins, changes and cancels them, and ends them once their target is in sync
(C11).

All state is in the image: a new controller reads what is pending and continues where the last one
stopped. It acts when a relevant change was applied, and every 30 s in case it missed one. The
channel manager tells brokers from the applied changes to start or delete replicas. A broker that
was down finds out at its start (rule 7).
"""

import asyncio
import functools
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from quorate.broker.changes.table import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS
from quorate.broker.controller.broker_changes import BrokerChanges
from quorate.broker.controller.channels.controller_channel_manager import ControllerChannelManager
from quorate.broker.controller.command_pipeline import (
    PIECE_PARTITIONS,
    CommandPipeline,
    write_items,
)
from quorate.broker.controller.managers import broker_manager, reassignment_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.reassignment_manager import EligibleBrokers, WantedTarget
from quorate.broker.controller.tenure import (
    EventPriority,
    EventQueue,
    Requester,
    TenureEnded,
    Writer,
)
from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.image import Changes, Image
from quorate.metadata_log.records import ResultCode
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import admin_pb2

log = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 30.0
"""The interval in seconds after which pending reassignments are checked in any case."""

RETRY_INTERVAL_S: Final = 0.2
"""The pause until the next attempt while the quorum is unavailable."""

ROUNDS_MAX: Final = 10
"""The attempts of one request that competes with ISR changes of leaders."""


class Reassignments:
    """Carries reassignments out during one controller's tenure.

    ``brokers`` returns the brokers that may lead.
    """

    def __init__(
        self,
        tenure: ControllerTenure,
        writer: Writer,
        channel_manager: ControllerChannelManager,
        events: EventQueue,
        brokers: BrokerChanges,
    ) -> None:
        self._tenure = tenure
        self._writer = writer
        self._channel_manager = channel_manager
        self._events = events
        self._brokers = brokers
        self._due: dict[str, None] = {}
        self._queued = False
        self._timer: asyncio.TimerHandle | None = None

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle these changes in ``pipeline``."""
        pipeline.register(ALTER_PARTITION_REASSIGNMENTS, self.alter)
        pipeline.register(LIST_PARTITION_REASSIGNMENTS, self.list)

    # -- progress --------------------------------------------------------------------------------

    def start(self) -> None:
        """Continue what is pending, then check from time to time."""
        self._reconsider(self._writer.image.reassignments)
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self.start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_image(self, image: Image, changes: Changes) -> None:
        """Check the changed topics, because a reassignment may wait for a change of an ISR."""
        self._reconsider(name for name in changes.topics if name in image.reassignments)

    def _reconsider(self, topics: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(sorted(topics)))
        if self._due and not self._queued:
            self._queued = True
            self._events.put(EventPriority.ADMIN, self._complete)

    async def _complete(self) -> None:
        """End the reassignments that can end, of the topics that are due."""
        self._queued = False
        due, self._due = self._due, {}
        try:
            await self._end(due)
        except TenureEnded:
            return
        except QuorumError as error:
            log.warning("reassignments wait for the quorum: %s", error)
            asyncio.get_running_loop().call_later(RETRY_INTERVAL_S, self._reconsider, due)

    async def _end(self, topics: Iterable[str]) -> None:
        """End reassignments. One that loses against another change is checked again for that
        change."""
        image = self._writer.image
        operations = reassignment_manager.completions(
            image, topics, tenure=self._tenure, candidates=self._candidates(image)
        )
        results = await self._writer.commit(operations)
        refused = [result.detail for result in results if not result.ok]
        if results:
            log.info("%d reassignments end, %d do not: %s", len(results), len(refused), refused[:1])

    def _candidates(self, image: Image) -> EligibleBrokers:
        brokers = self._brokers
        return EligibleBrokers(
            broker_manager.liveness(image), brokers.staying(image), brokers.offline(image)
        )

    # -- requests --------------------------------------------------------------------------------

    async def alter(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest, requester: Requester
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Begin, change or cancel reassignments. Answer once that is in the metadata log."""
        results: list[admin_pb2.PartitionResult] = []
        for start in range(0, len(request.partitions), PIECE_PARTITIONS):
            piece = [_wanted(one) for one in request.partitions[start : start + PIECE_PARTITIONS]]
            work = functools.partial(
                self._alter, piece, requester, request.allow_replication_factor_change
            )
            results += await self._events.run(EventPriority.ADMIN, work)
        self._channel_manager.publish()
        return admin_pb2.AlterPartitionReassignmentsResponse(partitions=results)

    async def _alter(
        self,
        wanted: Sequence[WantedTarget],
        requester: Requester,
        allow_replication_factor_change: bool,
    ) -> list[admin_pb2.PartitionResult]:
        """Decide and write. A partition whose leaderAndISR has changed meanwhile is decided
        again."""
        done: dict[TopicPartition, admin_pb2.PartitionResult] = {}
        left = list(dict.fromkeys(wanted))
        for _ in range(ROUNDS_MAX):
            image = self._writer.image
            decisions = reassignment_manager.alter(
                image,
                left,
                tenure=self._tenure,
                candidates=self._candidates(image),
                allow_replication_factor_change=allow_replication_factor_change,
            )
            outcomes = await write_items(self._writer, decisions, requester)
            lost = set()
            for one, decision, outcome in zip(left, decisions, outcomes, strict=True):
                done[one.tp] = decision.result
                if outcome is not None and outcome.code is ResultCode.VERSION_CONFLICT:
                    lost.add(one.tp)
            left = [one for one in left if one.tp in lost]
            if not left:
                break
        return [done[one.tp] for one in wanted]

    async def list(
        self, request: admin_pb2.ListPartitionReassignmentsRequest, _requester: Requester
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """List the pending reassignments of the named partitions, or all."""
        wanted = [TopicPartition(one.topic, one.partition) for one in request.partitions]
        found = reassignment_manager.listed(self._writer.image, None if request.all else wanted)
        return admin_pb2.ListPartitionReassignmentsResponse(partitions=found)


def _wanted(asked: admin_pb2.WantedReassignment) -> WantedTarget:
    tp = TopicPartition(asked.topic, asked.partition)
    return WantedTarget(tp, None if asked.cancel else tuple(map(BrokerId, asked.replicas)))
