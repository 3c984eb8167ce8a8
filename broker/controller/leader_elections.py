"""Carries out elections that were asked for, and gives leadership back to preferred replicas.

Both take the same way: partitions in pieces through the event queue, each decided from the newest
image. A leader's own ISR change may get in between; then the partition is decided again.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.config.controller import (
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
)
from broker.controller.admin_requests import PIECE_PARTITIONS, PUBLISH_TIMEOUT_MS, timeout_ms
from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import elections
from broker.controller.managers.elections import ElectionType
from broker.controller.managers.office import Office
from broker.controller.managers.partition_change import Brokers
from broker.controller.outcomes import carry_out
from broker.controller.publisher import Publisher
from broker.controller.writer import Writer
from metadata_log.configuration import Values
from metadata_log.image import Image
from metadata_log.records import ResultCode
from metadata_log.types import TopicPartition
from quorate_proto.v1 import admin_pb2
from quorum.errors import QuorumError

log = logging.getLogger(__name__)

ROUNDS_MAX: Final = 5
"""Attempts at one partition whose leader changes its ISR at the same time."""


class LeaderElections:
    """The elections of one controller's tenure.

    ``candidates``: brokers of an image that leaderships may move to.
    """

    def __init__(
        self,
        *,
        office: Office,
        config: Values,
        writer: Writer,
        events: EventQueue,
        publisher: Publisher,
        candidates: Callable[[Image], Brokers],
    ) -> None:
        self._office = office
        self._config = config
        self._writer = writer
        self._events = events
        self._publisher = publisher
        self._candidates = candidates
        self._balancing: asyncio.Task[None] | None = None
        self._configs_changed = asyncio.Event()

    def start(self) -> None:
        self._balancing = asyncio.create_task(self._balance_for_ever(), name="leader-balance")

    def close(self) -> None:
        if self._balancing is not None:
            self._balancing.cancel()

    def configs_changed(self) -> None:
        """Balancing may be on or off now, or due at another time."""
        self._configs_changed.set()

    # -- asked for -------------------------------------------------------------------------------

    async def elect_leaders(
        self, request: admin_pb2.ElectLeadersRequest
    ) -> admin_pb2.ElectLeadersResponse:
        """Elect, and answer once the brokers know of it.

        Of all partitions, those that need no election are not mentioned.
        """
        if request.all_partitions:
            wanted = await self._events.run(
                Priority.ADMIN, functools.partial(self._electable, request.election_type)
            )
        else:
            wanted = _named(request.topics)
        results = await self._elect_all(wanted, request.election_type)
        self._publisher.publish()
        await self._publisher.drained(min(PUBLISH_TIMEOUT_MS, timeout_ms(request.context)))
        return admin_pb2.ElectLeadersResponse(partitions=results)

    async def _electable(self, election_type: ElectionType) -> list[TopicPartition]:
        image = self._writer.image
        return elections.electable(image, election_type, candidates=self._candidates(image))

    async def _elect_all(
        self, wanted: Sequence[TopicPartition], election_type: ElectionType
    ) -> list[admin_pb2.PartitionResult]:
        results: list[admin_pb2.PartitionResult] = []
        for start in range(0, len(wanted), PIECE_PARTITIONS):
            piece = wanted[start : start + PIECE_PARTITIONS]
            work = functools.partial(self._elect, piece, election_type)
            results += await self._events.run(Priority.ADMIN, work)
        return results

    async def _elect(
        self, wanted: Sequence[TopicPartition], election_type: ElectionType
    ) -> list[admin_pb2.PartitionResult]:
        results: dict[TopicPartition, admin_pb2.PartitionResult] = {}
        left = wanted
        for _ in range(ROUNDS_MAX):
            image = self._writer.image
            decisions = elections.elect(
                image,
                left,
                election_type,
                office=self._office,
                candidates=self._candidates(image),
            )
            results.update(zip(left, (one.result for one in decisions), strict=True))
            outcomes = await carry_out(self._writer, decisions)
            left = [
                tp
                for tp, outcome in zip(left, outcomes, strict=True)
                if outcome is not None and outcome.code is ResultCode.VERSION_CONFLICT
            ]
            if not left:
                break
        return [results[tp] for tp in wanted]

    # -- by itself -------------------------------------------------------------------------------

    async def _balance_for_ever(self) -> None:
        while True:
            await self._balance_due()
            try:
                await self._balance()
            except LeftOffice:
                return
            except QuorumError as error:
                log.warning("leadership stays where it is until the quorum answers: %s", error)

    async def _balance_due(self) -> None:
        """Return an interval from now, as long as it is then and now configured."""
        began_s = asyncio.get_running_loop().time()
        while True:
            self._configs_changed.clear()
            on = self._config[AUTO_LEADER_REBALANCE_ENABLE]
            due_s = began_s + self._config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
            try:
                async with asyncio.timeout_at(due_s if on else None):
                    await self._configs_changed.wait()
            except TimeoutError:
                return

    async def _balance(self) -> None:
        wanted = await self._events.run(Priority.ADMIN, self._imbalanced)
        if wanted:
            log.info("%d partitions go back to their preferred leaders", len(wanted))
            await self._elect_all(wanted, admin_pb2.ELECTION_PREFERRED)

    async def _imbalanced(self) -> list[TopicPartition]:
        image = self._writer.image
        return elections.imbalanced(
            image,
            candidates=self._candidates(image),
            per_broker_percentage=self._config[LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
        )


def _named(topics: Iterable[admin_pb2.TopicPartitions]) -> list[TopicPartition]:
    """Each partition once, however often it is named."""
    named = (TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
    return list(dict.fromkeys(named))
