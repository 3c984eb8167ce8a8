"""Admin requests at the controller: cut into pieces, decided, written, answered item by item."""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from broker.config.topics import DEFAULT_REPLICATION_FACTOR, DELETE_TOPIC_ENABLE, NUM_PARTITIONS
from broker.controller import outcomes
from broker.controller.deletions import Deletions
from broker.controller.event_queue import EventQueue, Priority
from broker.controller.managers import producer_ids, topics
from broker.controller.managers.office import Office
from broker.controller.managers.topics import NewIds, TopicDecision, TopicDefaults
from broker.controller.publisher import Publisher
from broker.controller.quota_requests import QuotaRequests
from broker.controller.writer import Writer
from broker.errors import CODE_OF_RESULT
from metadata_log.configuration import Values
from metadata_log.types import TopicId
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import QuorumError, SessionLost

log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_TIMEOUT_MS: Final = 30_000
"""Deadline of a request that names none."""

PUBLISH_TIMEOUT_MS: Final = 1_000
"""A creation is answered once the brokers know of it, or after this long without one of them."""

PIECE_PARTITIONS: Final = 2_000
"""A request is queued in pieces of about this many partitions: an election waits for one."""


class AdminRequests:
    """What clients ask of one controller during its tenure."""

    def __init__(
        self,
        *,
        office: Office,
        config: Values,
        writer: Writer,
        events: EventQueue,
        publisher: Publisher,
        deletions: Deletions,
        draw: Callable[[], NewIds],
        quotas: QuotaRequests,
    ) -> None:
        self._office = office
        self._config = config
        self._writer = writer
        self._events = events
        self._publisher = publisher
        self._deletions = deletions
        self._draw = draw
        self._quotas = quotas

    async def create_topics(
        self, request: admin_pb2.CreateTopicsRequest
    ) -> admin_pb2.CreateTopicsResponse:
        """Create topics, and answer once the brokers know of them (C4, C19)."""
        repeated = topics.repeated_names(topic.name for topic in request.topics)
        quota = self._quotas.of(request)
        charge = topics.free if request.validate_only else quota.charge

        async def create(piece: Sequence[admin_pb2.NewTopic]) -> list[admin_pb2.TopicResult]:
            decisions = topics.create_topics(
                self._writer.image,
                piece,
                office=self._office,
                defaults=TopicDefaults(
                    self._config[NUM_PARTITIONS], self._config[DEFAULT_REPLICATION_FACTOR]
                ),
                draw=self._draw,
                repeated=repeated,
                charge=charge,
            )
            if request.validate_only:
                return [without_id(decision.result) for decision in decisions]
            return await carry_out(self._writer, decisions)

        results: list[admin_pb2.TopicResult] = []
        for piece in pieces(request.topics, _new_partitions):
            work = functools.partial(create, piece)
            results += await self._events.run(Priority.ADMIN, work)
        self._publisher.publish()
        await self._publisher.drained(min(PUBLISH_TIMEOUT_MS, timeout_ms(request.context)))
        return admin_pb2.CreateTopicsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    async def delete_topics(
        self, request: admin_pb2.DeleteTopicsRequest
    ) -> admin_pb2.DeleteTopicsResponse:
        """Delete topics, and answer once they are gone; REQUEST_TIMED_OUT if that takes longer."""
        deadline_ms = now_ms() + timeout_ms(request.context)
        quota = self._quotas.of(request)

        async def delete() -> list[admin_pb2.TopicResult]:
            decisions = topics.delete_topics(
                self._writer.image,
                request.names,
                request.topic_ids,
                office=self._office,
                deletion_enabled=self._config[DELETE_TOPIC_ENABLE],
                charge=quota.charge,
            )
            return await carry_out(self._writer, decisions)

        results = await self._events.run(Priority.ADMIN, delete)
        accepted = [one for one in results if one.error_code == errors_pb2.NONE]
        names = [one.name for one in accepted]
        self._deletions.take_up(names)
        await self._deletions.finished(names, deadline_ms - now_ms())
        image = self._writer.image
        for result in accepted:
            if image.topic_by_id(TopicId(result.topic_id)) is not None:
                result.error_code = errors_pb2.REQUEST_TIMED_OUT
                result.error_message = f"the deletion of {result.name!r} goes on"
        self._publisher.publish()
        await self._publisher.drained(min(PUBLISH_TIMEOUT_MS, max(0, deadline_ms - now_ms())))
        return admin_pb2.DeleteTopicsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    async def allocate_producer_ids(
        self, request: admin_pb2.AllocateProducerIdsRequest
    ) -> admin_pb2.AllocateProducerIdsResponse:
        """A block of producer ids for a broker in its current incarnation."""

        async def allocate() -> admin_pb2.AllocateProducerIdsResponse:
            decision = producer_ids.allocate(self._writer.image, request, office=self._office)
            if decision.operation is None:
                return decision.response
            (result,) = await self._writer.commit([decision.operation])
            if result.ok:
                return decision.response
            return admin_pb2.AllocateProducerIdsResponse(error_code=CODE_OF_RESULT[result.code])

        try:
            return await self._events.run(Priority.ADMIN, allocate)
        except SessionLost:
            raise
        except QuorumError as error:
            log.warning("no producer ids for broker %d: %s", request.broker_id, error)
            return admin_pb2.AllocateProducerIdsResponse(error_code=errors_pb2.REQUEST_TIMED_OUT)


async def carry_out(
    writer: Writer, decisions: Sequence[TopicDecision]
) -> list[admin_pb2.TopicResult]:
    """Write what was decided; each result says what became of its topic.

    Raises:
        LeftOffice, SessionLost: another controller is in office, or will be.
    """
    await outcomes.carry_out(writer, decisions)
    return [decision.result for decision in decisions]


def without_id(result: admin_pb2.TopicResult) -> admin_pb2.TopicResult:
    """What was only validated has no id."""
    result.ClearField("topic_id")
    return result


def pieces(wanted: Sequence[T], partitions: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """The topics of a request in pieces of about ``PIECE_PARTITIONS`` partitions, in order."""
    piece: list[T] = []
    size = 0
    for topic in wanted:
        piece.append(topic)
        size += max(1, partitions(topic))
        if size >= PIECE_PARTITIONS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _new_partitions(topic: admin_pb2.NewTopic) -> int:
    return max(topic.num_partitions, len(topic.assignments))


def timeout_ms(context: admin_pb2.RequestContext) -> float:
    """What a request has left; the default where it does not say."""
    return context.timeout_ms if context.timeout_ms > 0 else DEFAULT_TIMEOUT_MS


def now_ms() -> float:
    """The loop's clock: what deadlines are reckoned by."""
    return asyncio.get_running_loop().time() * 1000
