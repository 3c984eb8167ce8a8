"""The handlers for topics and their partition counts: create, delete, add and remove.

A request is cut into pieces, each of which is decided and written as one event. Creations and
deletions of partitions are charged to the client's controller mutation quota (KIP-599).
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from quorate.broker.changes import table
from quorate.broker.config.client_keys import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
)
from quorate.broker.config.topics import (
    DEFAULT_REPLICATION_FACTOR,
    DELETE_TOPIC_ENABLE,
    MAX_BROKER_PARTITIONS,
    NUM_PARTITIONS,
)
from quorate.broker.controller.channels.controller_channel_manager import ControllerChannelManager
from quorate.broker.controller.command_pipeline import (
    PIECE_PARTITIONS,
    CommandPipeline,
    DecisionWriter,
)
from quorate.broker.controller.managers import partition_count_manager, topic_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.placement import NewIds, ReplicaLimit
from quorate.broker.controller.managers.topic_manager import (
    Charge,
    TopicDecision,
    TopicDefaults,
    charge_nothing,
    repeated_names,
)
from quorate.broker.controller.pending_work import AllPendingWork, PendingWork
from quorate.broker.controller.tenure import EventQueue, Requester, Writer
from quorate.broker.quota.controller_mutation_quotas import (
    ControllerMutationQuota,
    ControllerMutationQuotaManager,
)
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.broker.security.principal import ANONYMOUS
from quorate.common.configuration import Values
from quorate.common.metrics.family import Sample
from quorate.common.types import TopicId
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Topic
from quorate_proto.v1 import admin_pb2, errors_pb2

T = TypeVar("T")


class ChargedRequest(Protocol):
    """A request that is charged to its client's quota."""

    @property
    def context(self) -> admin_pb2.RequestContext: ...


class RequestQuota:
    """The quota that one request is charged to, and the throttle time of its client."""

    def __init__(self, quota: ControllerMutationQuota | None) -> None:
        self._quota = quota

    def charge(self, partitions: int) -> None:
        """Charge ``partitions``.

        Raises:
            MutationQuotaExceeded: The request is refused, and nothing is charged (Q4).
        """
        if self._quota is not None:
            self._quota.record(partitions, _now_ms())

    @property
    def throttle_time_ms(self) -> int:
        """Return the remaining throttle time. The client has already waited for the time since the
        charge (Q5)."""
        return 0 if self._quota is None else self._quota.throttle_time_ms(_now_ms())


class TopicRequests:
    """The handlers of changes to topics, during one controller's tenure.

    ``draw`` returns ids, and the placement start for a topic that does not name its replicas.
    """

    def __init__(
        self,
        *,
        tenure: ControllerTenure,
        config: Values,
        writer: Writer,
        events: EventQueue,
        channel_manager: ControllerChannelManager,
        pending: AllPendingWork,
        draw: Callable[[], NewIds],
    ) -> None:
        self._tenure = tenure
        self._config = config
        self._writer = writer
        self._events = events
        self._channel_manager = channel_manager
        self._pending = pending
        self._draw = draw
        self._limit = ReplicaLimit(lambda: config[MAX_BROKER_PARTITIONS])
        self._decisions = DecisionWriter(writer, events, together=False)
        self._quotas = ControllerMutationQuotaManager(
            QuotaWindow(
                config[CONTROLLER_QUOTA_WINDOW_NUM], config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS]
            ),
            empty_since_ms=None if tenure.is_first else _now_ms(),
        )

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle these changes in ``pipeline``."""
        pipeline.register(table.CREATE_TOPICS, self.create_topics)
        pipeline.register(table.DELETE_TOPICS, self.delete_topics)
        pipeline.register(table.CREATE_PARTITIONS, self.create_partitions)
        pipeline.register(table.REMOVE_PARTITIONS, self.remove_partitions)

    def metrics(self) -> Iterable[Sample]:
        """Return how much clients have used of their quotas (Q9)."""
        return self._quotas.metrics(_now_ms())

    async def create_topics(
        self, request: admin_pb2.CreateTopicsRequest, requester: Requester
    ) -> admin_pb2.CreateTopicsResponse:
        """Create topics, and answer once the brokers know of them (C4, C19)."""
        quota = self._quota_of(request)
        create = functools.partial(
            topic_manager.create_topics,
            tenure=self._tenure,
            defaults=self._defaults,
            draw=self._draw,
            repeated=repeated_names(topic.name for topic in request.topics),
            charge=charge_nothing if request.validate_only else quota.charge,
            limit=self._limit,
        )
        results = await self._write_pieces(
            [
                functools.partial(create, topics=piece)
                for piece in pieces(request.topics, _new_partitions)
            ],
            requester,
            validate_only=request.validate_only,
        )
        await self._channel_manager.publish_and_wait(requester.timeout_ms)
        return admin_pb2.CreateTopicsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    def _defaults(self) -> TopicDefaults:
        return TopicDefaults(self._config[NUM_PARTITIONS], self._config[DEFAULT_REPLICATION_FACTOR])

    async def delete_topics(
        self, request: admin_pb2.DeleteTopicsRequest, requester: Requester
    ) -> admin_pb2.DeleteTopicsResponse:
        """Delete topics, and answer once they are gone, or with REQUEST_TIMED_OUT if that takes
        longer."""
        deadline_ms = _now_ms() + requester.timeout_ms
        quota = self._quota_of(request)
        delete = functools.partial(
            topic_manager.delete_topics,
            tenure=self._tenure,
            deletion_enabled=self._config[DELETE_TOPIC_ENABLE],
            charge=quota.charge,
        )
        image = self._writer.image
        named = pieces(request.names, lambda name: _partitions_of(image.topics.get(name)))
        identified = pieces(
            request.topic_ids, lambda one: _partitions_of(image.topic_by_id(TopicId(one)))
        )
        results = await self._write_pieces(
            [
                *(functools.partial(delete, names=piece, topic_ids=()) for piece in named),
                *(functools.partial(delete, names=(), topic_ids=piece) for piece in identified),
            ],
            requester,
            validate_only=False,
        )
        accepted = [one for one in results if one.error_code == errors_pb2.NONE]
        names = [one.name for one in accepted]
        self._pending.deletions.take_up(names)
        await self._pending.deletions.finished(names, deadline_ms - _now_ms())
        image = self._writer.image
        for result in accepted:
            if image.topic_by_id(TopicId(result.topic_id)) is not None:
                result.error_code = errors_pb2.REQUEST_TIMED_OUT
                result.error_message = f"the deletion of {result.name!r} goes on"
        await self._channel_manager.publish_and_wait(deadline_ms - _now_ms())
        return admin_pb2.DeleteTopicsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    async def create_partitions(
        self, request: admin_pb2.CreatePartitionsRequest, requester: Requester
    ) -> admin_pb2.CreatePartitionsResponse:
        """Add partitions, and answer once the brokers know of them (C14)."""
        quota = self._quota_of(request)
        add = functools.partial(
            partition_count_manager.add_partitions,
            tenure=self._tenure,
            draw=lambda: self._draw().placement,
            repeated=repeated_names(one.name for one in request.topics),
            charge=charge_nothing if request.validate_only else quota.charge,
            limit=self._limit,
        )
        results = await self._change_counts(
            [
                functools.partial(add, wanted=piece)
                for piece in pieces(request.topics, lambda topic: topic.count)
            ],
            self._pending.additions,
            requester,
            validate_only=request.validate_only,
        )
        return admin_pb2.CreatePartitionsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    async def remove_partitions(
        self, request: admin_pb2.RemovePartitionsRequest, requester: Requester
    ) -> admin_pb2.RemovePartitionsResponse:
        """Remove partitions, and answer once they are gone (C14).

        The answer is REQUEST_TIMED_OUT if that takes longer than the request may.
        """
        quota = self._quota_of(request)
        charge: Charge = charge_nothing if request.validate_only else quota.charge
        results = await self._change_counts(
            [
                lambda image: partition_count_manager.remove_partitions(
                    image, request.topics, tenure=self._tenure, charge=charge
                )
            ],
            self._pending.removals,
            requester,
            validate_only=request.validate_only,
        )
        return admin_pb2.RemovePartitionsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    async def _change_counts(
        self,
        decisions: Iterable[Callable[[Image], Sequence[TopicDecision]]],
        work: PendingWork,
        requester: Requester,
        *,
        validate_only: bool,
    ) -> list[admin_pb2.TopicResult]:
        """Return one result per topic once the accepted work is done and published."""
        deadline_ms = _now_ms() + requester.timeout_ms
        results = await self._write_pieces(decisions, requester, validate_only=validate_only)
        if validate_only:
            return results
        accepted = {one.name: one for one in results if one.error_code == errors_pb2.NONE}
        work.take_up(accepted)
        await work.finished(accepted, deadline_ms - _now_ms())
        for name in accepted.keys() & work.pending(self._writer.image).keys():
            accepted[name].error_code = errors_pb2.REQUEST_TIMED_OUT
            accepted[name].error_message = f"the {work.kind} of partitions of {name!r} goes on"
        await self._channel_manager.publish_and_wait(deadline_ms - _now_ms())
        return results

    async def _write_pieces(
        self,
        decisions: Iterable[Callable[[Image], Sequence[TopicDecision]]],
        requester: Requester,
        *,
        validate_only: bool,
    ) -> list[admin_pb2.TopicResult]:
        """Decide and write piece by piece. Return one result per topic.

        The result of a topic that was only validated has no topic id.
        """
        results: list[admin_pb2.TopicResult] = []
        for decide in decisions:
            results += await self._decisions.write_each(
                decide, requester, validate_only=validate_only
            )
        if validate_only:
            for result in results:
                result.ClearField("topic_id")
        return results

    def _quota_of(self, request: ChargedRequest) -> RequestQuota:
        """Return the mutation quota of the principal and client id on whose behalf ``request``
        comes."""
        context, quotas = request.context, self._writer.image.client_quotas
        if not quotas:
            return RequestQuota(None)
        quota = self._quotas.quota_for(
            quotas,
            context.principal_name.partition(":")[2] or ANONYMOUS.name,
            context.client_id,
            strict=not context.accept_over_quota,
            now_ms=_now_ms(),
        )
        return RequestQuota(quota)


def pieces(wanted: Sequence[T], partitions: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Cut the topics of a request, in order, into pieces of about ``PIECE_PARTITIONS``."""
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


def _partitions_of(topic: Topic | None) -> int:
    return 0 if topic is None else len(topic.partitions)


def _now_ms() -> float:
    """Return the event loop's clock in milliseconds, which deadlines use."""
    return asyncio.get_running_loop().time() * 1000
