"""Takes in requests to add and remove partitions, and carries them out (C14)."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from broker.controller.admin_requests import (
    PUBLISH_TIMEOUT_MS,
    carry_out,
    now_ms,
    pieces,
    timeout_ms,
    without_id,
)
from broker.controller.event_queue import EventQueue, Priority
from broker.controller.managers import partition_counts
from broker.controller.managers.office import Office
from broker.controller.managers.topics import NewIds, TopicDecision, free, repeated_names
from broker.controller.pending_work import STOP_TIMEOUT_MS, PendingWork
from broker.controller.publisher import Publisher
from broker.controller.quota_requests import QuotaRequests
from broker.controller.writer import Writer
from metadata_log.draft import Changes
from metadata_log.image import Image, PartitionAddition, PartitionRemoval
from metadata_log.records import Operation
from quorate_proto.v1 import admin_pb2, errors_pb2

Decide = Callable[[Image], list[TopicDecision]]


class Additions(PendingWork):
    """Leaders are chosen when an addition ends, which needs nobody but the quorum."""

    kind = "addition"

    @staticmethod
    def pending(image: Image) -> Mapping[str, PartitionAddition]:
        return image.additions

    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        return partition_counts.additions(image, self.office, names)


class Removals(PendingWork):
    """The replicas are stopped first; brokers that are away find out at their start (rule 7)."""

    kind = "removal"

    @staticmethod
    def pending(image: Image) -> Mapping[str, PartitionRemoval]:
        return image.removals

    async def prepare(self, image: Image, names: Collection[str]) -> None:
        await self.publisher.stop_leaving(image, names, STOP_TIMEOUT_MS)

    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        return partition_counts.removals(image, self.office, names)


class PartitionCounts:
    """How many partitions topics have, during one controller's tenure.

    ``draw``: where placement begins where a topic does not say.
    """

    def __init__(
        self,
        *,
        office: Office,
        writer: Writer,
        events: EventQueue,
        publisher: Publisher,
        draw: Callable[[], NewIds],
        quotas: QuotaRequests,
    ) -> None:
        self._office = office
        self._writer = writer
        self._events = events
        self._publisher = publisher
        self._draw = draw
        self._quotas = quotas
        self._additions = Additions(office, writer, publisher, events)
        self._removals = Removals(office, writer, publisher, events)

    def take_up(self) -> None:
        """Go on where the last controller stopped (C9)."""
        image = self._writer.image
        self._additions.take_up(image.additions)
        self._removals.take_up(image.removals)

    def on_image(self, changes: Changes) -> None:
        """Something was applied: it may be pending from now on."""
        self._additions.take_up(changes.additions)
        self._removals.take_up(changes.removals)

    def close(self) -> None:
        self._additions.close()
        self._removals.close()

    async def create_partitions(
        self, request: admin_pb2.CreatePartitionsRequest
    ) -> admin_pb2.CreatePartitionsResponse:
        """Add partitions, and answer once the brokers know of them."""
        repeated = repeated_names(one.name for one in request.topics)
        quota = self._quotas.of(request)
        charge = free if request.validate_only else quota.charge

        def decide(piece: Sequence[admin_pb2.NewPartitions], image: Image) -> list[TopicDecision]:
            return partition_counts.add_partitions(
                image,
                piece,
                office=self._office,
                draw=lambda: self._draw().placement,
                repeated=repeated,
                charge=charge,
            )

        results = await self._changed(
            request,
            self._additions,
            [functools.partial(decide, one) for one in pieces(request.topics, lambda t: t.count)],
        )
        return admin_pb2.CreatePartitionsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    async def remove_partitions(
        self, request: admin_pb2.RemovePartitionsRequest
    ) -> admin_pb2.RemovePartitionsResponse:
        """Remove partitions, and answer once they are gone; REQUEST_TIMED_OUT if that takes longer
        than the request may."""
        quota = self._quotas.of(request)
        charge = free if request.validate_only else quota.charge

        def decide(image: Image) -> list[TopicDecision]:
            return partition_counts.remove_partitions(
                image, request.topics, office=self._office, charge=charge
            )

        results = await self._changed(request, self._removals, [decide])
        return admin_pb2.RemovePartitionsResponse(
            topics=results, throttle_time_ms=quota.throttle_time_ms
        )

    async def _changed(
        self,
        request: admin_pb2.CreatePartitionsRequest | admin_pb2.RemovePartitionsRequest,
        work: PendingWork,
        decisions: Iterable[Decide],
    ) -> list[admin_pb2.TopicResult]:
        """One result per topic once the work that was accepted is done."""
        deadline_ms = now_ms() + timeout_ms(request.context)
        results: list[admin_pb2.TopicResult] = []
        for decide in decisions:
            accept = functools.partial(self._accept, decide, request.validate_only)
            results += await self._events.run(Priority.ADMIN, accept)
        if not request.validate_only:
            await self._done(work, results, deadline_ms)
        return results

    async def _accept(self, decide: Decide, validate_only: bool) -> list[admin_pb2.TopicResult]:
        decisions = decide(self._writer.image)
        if validate_only:
            return [without_id(decision.result) for decision in decisions]
        return await carry_out(self._writer, decisions)

    async def _done(
        self, work: PendingWork, results: Iterable[admin_pb2.TopicResult], deadline_ms: float
    ) -> None:
        """Wait until what was accepted is done and told, or the time is up."""
        accepted = {one.name: one for one in results if one.error_code == errors_pb2.NONE}
        work.take_up(accepted)
        await work.finished(accepted, deadline_ms - now_ms())
        for name in accepted.keys() & work.pending(self._writer.image).keys():
            accepted[name].error_code = errors_pb2.REQUEST_TIMED_OUT
            accepted[name].error_message = f"the {work.kind} of partitions of {name!r} goes on"
        self._publisher.publish()
        await self._publisher.drained(min(PUBLISH_TIMEOUT_MS, max(0, deadline_ms - now_ms())))
