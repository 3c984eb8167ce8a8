"""Carries reassignments on: takes them in, and ends each one once its target is in sync (C11).

Everything it knows is in the image: a new controller looks at what is pending and goes on, wherever
the last one stopped. It wakes when something it waits for was applied, and every 30 s in case it
missed that. Who has to start or drop a replica is told by the publisher, from what was applied; a
broker that was away finds out at its start (rule 7).
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import brokers as broker_manager
from broker.controller.managers import reassignments
from broker.controller.managers.office import Office
from broker.controller.managers.partition_change import Brokers
from broker.controller.managers.reassignments import Candidates, Wanted
from broker.controller.outcomes import carry_out
from broker.controller.publisher import Publisher
from broker.controller.writer import Writer
from metadata_log.draft import Changes
from metadata_log.image import Image
from metadata_log.records import ResultCode
from metadata_log.types import BrokerId, TopicPartition
from quorate_proto.v1 import admin_pb2
from quorum.errors import QuorumError

log = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 30.0
"""Pending reassignments are looked at so often whatever was applied."""

RETRY_INTERVAL_S: Final = 0.2
"""Until the next attempt while the quorum is away."""

ROUNDS_MAX: Final = 10
"""Decisions of one request that ISR changes of leaders get in the way of."""

PIECE_PARTITIONS: Final = 2_000
"""A request is queued in pieces of so many partitions: an election waits for one."""


class ReassignmentAgent:
    """The reassignments of one controller's tenure. ``staying``: brokers that may be led to."""

    def __init__(
        self,
        office: Office,
        writer: Writer,
        publisher: Publisher,
        events: EventQueue,
        staying: Callable[[Image], Brokers],
    ) -> None:
        self._office = office
        self._writer = writer
        self._publisher = publisher
        self._events = events
        self._staying = staying
        self._due: dict[str, None] = {}
        self._queued = False
        self._timer: asyncio.TimerHandle | None = None

    # -- going on --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what is pending, then look again from time to time."""
        self._look(self._writer.image.reassignments)
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self.start)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_image(self, image: Image, changes: Changes) -> None:
        """Something was applied: an ISR may be what a reassignment waits for."""
        if image.reassignments:
            self._look(name for name in changes.topics if name in image.reassignments)

    def _look(self, topics: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(sorted(topics)))
        if self._due and not self._queued:
            self._queued = True
            self._events.put(Priority.ADMIN, self._complete)

    async def _complete(self) -> None:
        """End what can end, of the topics that are due."""
        self._queued = False
        due, self._due = self._due, {}
        try:
            await self._end(due)
        except LeftOffice:
            return
        except QuorumError as error:
            log.warning("reassignments wait for the quorum: %s", error)
            asyncio.get_running_loop().call_later(RETRY_INTERVAL_S, self._look, due)

    async def _end(self, topics: Iterable[str]) -> None:
        """What loses against another change is looked at again because of that change."""
        image = self._writer.image
        operations = reassignments.completions(
            image, topics, office=self._office, candidates=self._candidates(image)
        )
        results = await self._writer.commit(operations)
        refused = [result.detail for result in results if not result.ok]
        if results:
            log.info("%d reassignments end, %d do not: %s", len(results), len(refused), refused[:1])

    def _candidates(self, image: Image) -> Candidates:
        return Candidates(broker_manager.liveness(image), self._staying(image))

    # -- requests --------------------------------------------------------------------------------

    async def alter(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Begin, change or cancel reassignments; answered once that is in the metadata log."""
        results: list[admin_pb2.PartitionResult] = []
        for start in range(0, len(request.partitions), PIECE_PARTITIONS):
            piece = [_wanted(one) for one in request.partitions[start : start + PIECE_PARTITIONS]]
            work = functools.partial(self._alter, piece, request.allow_replication_factor_change)
            results += await self._events.run(Priority.ADMIN, work)
        self._publisher.publish()
        return admin_pb2.AlterPartitionReassignmentsResponse(partitions=results)

    async def _alter(
        self, wanted: Sequence[Wanted], allow_replication_factor_change: bool
    ) -> list[admin_pb2.PartitionResult]:
        """Decide and write; what met a newer leaderAndISR is decided again."""
        done: dict[TopicPartition, admin_pb2.PartitionResult] = {}
        left = list(dict.fromkeys(wanted))
        for _ in range(ROUNDS_MAX):
            image = self._writer.image
            decisions = reassignments.alter(
                image,
                left,
                office=self._office,
                candidates=self._candidates(image),
                allow_replication_factor_change=allow_replication_factor_change,
            )
            outcomes = await carry_out(self._writer, decisions)
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
        self, request: admin_pb2.ListPartitionReassignmentsRequest
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """What is pending, of the partitions named or of all."""
        wanted = [TopicPartition(one.topic, one.partition) for one in request.partitions]
        found = reassignments.listed(self._writer.image, None if request.all else wanted)
        return admin_pb2.ListPartitionReassignmentsResponse(partitions=found)


def _wanted(asked: admin_pb2.WantedReassignment) -> Wanted:
    tp = TopicPartition(asked.topic, asked.partition)
    return Wanted(tp, None if asked.cancel else tuple(map(BrokerId, asked.replicas)))
