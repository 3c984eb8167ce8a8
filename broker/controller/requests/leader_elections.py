"""Leader elections that are requested, and the automatic return of leadership to preferred
replicas: at intervals, and soon after brokers that were absent are back.

Both go through the event queue in pieces, and each partition is decided from the newest image. If a
leader's own ISR change comes in between, the partition is decided again.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from quorate.broker.changes.table import ELECT_LEADERS
from quorate.broker.config.controller import (
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
)
from quorate.broker.controller.broker_changes import BrokerChanges
from quorate.broker.controller.channels.controller_channel_manager import ControllerChannelManager
from quorate.broker.controller.command_pipeline import (
    PIECE_PARTITIONS,
    CommandPipeline,
    write_items,
)
from quorate.broker.controller.managers import election_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.election_manager import ElectionType
from quorate.broker.controller.tenure import (
    EventPriority,
    EventQueue,
    Requester,
    TenureEnded,
    Writer,
)
from quorate.common.configuration import Values
from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.image import Broker, Image
from quorate.metadata_log.records import ResultCode
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import admin_pb2

log = logging.getLogger(__name__)

RECOVERY_LOOK_INTERVAL_S: Final = 2.0
"""The time between two looks whether the cluster has recovered. Between two of them no broker may
have come or gone, so that leadership does not follow each broker of a start one by one."""

ROUNDS_MAX: Final = 5
"""The attempts at one partition whose leader changes its ISR at the same time."""


class LeaderElections:
    """Elects leaders during one controller's tenure.

    ``brokers`` returns the brokers that leadership may move to. ``reaches_all`` asks all live
    brokers, and returns whether they answer.
    """

    def __init__(
        self,
        *,
        tenure: ControllerTenure,
        config: Values,
        writer: Writer,
        events: EventQueue,
        channel_manager: ControllerChannelManager,
        brokers: BrokerChanges,
        reaches_all: Callable[[Image], Awaitable[bool]],
    ) -> None:
        self._tenure = tenure
        self._config = config
        self._writer = writer
        self._events = events
        self._channel_manager = channel_manager
        self._brokers = brokers
        self._reaches_all = reaches_all
        self._balancing: asyncio.Task[None] | None = None
        self._configs_changed = asyncio.Event()
        self._brokers_seen: Mapping[BrokerId, Broker] | None = None
        """The brokers at the last look."""
        self._brokers_balanced: Mapping[BrokerId, Broker] | None = None
        """The brokers among which leadership was balanced after they had recovered."""

    def start(self) -> None:
        self._balancing = asyncio.create_task(self._balance_for_ever(), name="leader-balance")

    def close(self) -> None:
        if self._balancing is not None:
            self._balancing.cancel()

    def configs_changed(self) -> None:
        """Read the configuration again: balancing may be enabled, disabled, or due at another
        time."""
        self._configs_changed.set()

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle ElectLeaders in ``pipeline``."""
        pipeline.register(ELECT_LEADERS, self.elect_leaders)

    # -- on request ------------------------------------------------------------------------------

    async def elect_leaders(
        self, request: admin_pb2.ElectLeadersRequest, requester: Requester
    ) -> admin_pb2.ElectLeadersResponse:
        """Elect leaders, and answer once the brokers know of it.

        If the request is about all partitions, those that need no election are not in the answer.
        """
        if request.all_partitions:
            wanted = await self._events.run(
                EventPriority.ELECTIONS, functools.partial(self._electable, request.election_type)
            )
        else:
            wanted = _named(request.topics)
        results = await self._elect_all(wanted, request.election_type, requester)
        await self._channel_manager.publish_and_wait(requester.timeout_ms)
        return admin_pb2.ElectLeadersResponse(partitions=results)

    async def _electable(self, election_type: ElectionType) -> list[TopicPartition]:
        image = self._writer.image
        return election_manager.electable(
            image,
            election_type,
            candidates=self._brokers.staying(image),
            offline=self._brokers.offline(image),
        )

    async def _elect_all(
        self,
        wanted: Sequence[TopicPartition],
        election_type: ElectionType,
        requester: Requester | None,
    ) -> list[admin_pb2.PartitionResult]:
        """Elect in pieces. ``requester`` is None where the controller balances by itself, which can
        wait."""
        priority = EventPriority.ADMIN if requester is None else EventPriority.ELECTIONS
        results: list[admin_pb2.PartitionResult] = []
        for start in range(0, len(wanted), PIECE_PARTITIONS):
            piece = wanted[start : start + PIECE_PARTITIONS]
            work = functools.partial(self._elect, piece, election_type, requester)
            results += await self._events.run(priority, work)
        return results

    async def _elect(
        self,
        wanted: Sequence[TopicPartition],
        election_type: ElectionType,
        requester: Requester | None,
    ) -> list[admin_pb2.PartitionResult]:
        results: dict[TopicPartition, admin_pb2.PartitionResult] = {}
        left = wanted
        for _ in range(ROUNDS_MAX):
            image = self._writer.image
            decisions = election_manager.elect(
                image,
                left,
                election_type,
                tenure=self._tenure,
                candidates=self._brokers.staying(image),
                offline=self._brokers.offline(image),
            )
            results.update(zip(left, (one.result for one in decisions), strict=True))
            outcomes = await write_items(self._writer, decisions, requester)
            left = [
                tp
                for tp, outcome in zip(left, outcomes, strict=True)
                if outcome is not None and outcome.code is ResultCode.VERSION_CONFLICT
            ]
            if not left:
                break
        return [results[tp] for tp in wanted]

    # -- automatic balancing ---------------------------------------------------------------------

    async def _balance_for_ever(self) -> None:
        while True:
            try:
                await self._balance_due()
                await self._balance()
            except TenureEnded:
                return
            except QuorumError as error:
                log.warning("leadership stays where it is until the quorum answers: %s", error)

    async def _balance_due(self) -> None:
        """Return after an interval, as long as the same interval is still configured then, or once
        the cluster has recovered from the absence of brokers."""
        clock_s = asyncio.get_running_loop().time
        began_s = clock_s()
        while True:
            self._configs_changed.clear()
            on = self._config[AUTO_LEADER_REBALANCE_ENABLE]
            due_s = began_s + self._config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
            if on and await self._has_recovered():
                return
            look_s = min(due_s, clock_s() + RECOVERY_LOOK_INTERVAL_S)
            try:
                async with asyncio.timeout_at(look_s if on else None):
                    await self._configs_changed.wait()
            except TimeoutError:
                if clock_s() >= due_s:
                    return

    async def _has_recovered(self) -> bool:
        """Return True once after brokers came or went: when none has for a while, and all replicas
        are in sync again. It costs a comparison while no broker comes or goes."""
        brokers = self._writer.image.brokers
        if brokers is self._brokers_balanced:
            return False
        seen, self._brokers_seen = self._brokers_seen, brokers
        if seen is not brokers or not await self._events.run(EventPriority.ADMIN, self._is_whole):
            return False
        self._brokers_balanced = brokers
        return True

    async def _is_whole(self) -> bool:
        return election_manager.is_whole(self._writer.image)

    async def _balance(self) -> None:
        wanted = await self._events.run(EventPriority.ADMIN, self._imbalanced)
        if not wanted:
            return
        if not await self._reaches_all(self._writer.image):
            # A broker that is not told of its leadership leads nobody, and the broker that led
            # before would have led on.
            self._brokers_balanced = None
            return
        log.info("%d partitions go back to their preferred leaders", len(wanted))
        await self._elect_all(wanted, admin_pb2.ELECTION_PREFERRED, None)

    async def _imbalanced(self) -> list[TopicPartition]:
        image = self._writer.image
        return election_manager.imbalanced(
            image,
            candidates=self._brokers.staying(image),
            per_broker_percentage=self._config[LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
            offline=self._brokers.offline(image),
        )


def _named(topics: Iterable[admin_pb2.TopicPartitions]) -> list[TopicPartition]:
    """Return each partition once, however often it is named."""
    named = (TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
    return list(dict.fromkeys(named))
