"""Quotas at the controller: changed on request, and charged for what clients have it do."""

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from broker.controller.event_queue import EventQueue
from broker.controller.managers import client_quotas
from broker.controller.managers.office import Office
from broker.controller.rounds import Rounds
from broker.controller.writer import Writer
from broker.quota.controller_mutations import (
    GROUP,
    ControllerMutationQuota,
    ControllerMutationQuotaManager,
)
from broker.quota.windowed_rate import QuotaWindow
from broker.security.principal import ANONYMOUS
from quorate_proto.v1 import admin_pb2
from quorum.metrics.family import Family, Kind, Sample

QUEUED: Final = Family(
    "quorate_controller_events_queued",
    Kind.GAUGE,
    GROUP,
    "events-queued",
    "Events that the controller has not got to yet: quotas are sized by it.",
)


class ChangeRequest(Protocol):
    """A request that costs something."""

    @property
    def context(self) -> admin_pb2.RequestContext: ...


class RequestQuota:
    """What one request is charged, and how long its client is throttled for it."""

    def __init__(self, quota: ControllerMutationQuota) -> None:
        self._quota = quota

    def charge(self, partitions: int) -> None:
        """Raises:
        ThrottlingQuotaExceededError: refused, and nothing charged (Q4).
        """
        self._quota.record(partitions, _now_ms())

    @property
    def throttle_time_ms(self) -> int:
        """From now on: the time since it was charged, the client has waited already (Q5)."""
        return self._quota.throttle_time_ms(_now_ms())


class QuotaRequests:
    """One controller's tenure."""

    def __init__(
        self,
        office: Office,
        writer: Writer,
        events: EventQueue,
        rounds: Rounds,
        window: QuotaWindow,
    ) -> None:
        self._office = office
        self._writer = writer
        self._events = events
        self._rounds = rounds
        self._manager = ControllerMutationQuotaManager(window)

    def of(self, request: ChangeRequest) -> RequestQuota:
        """The mutation quota of the one on whose behalf ``request`` comes."""
        context = request.context
        quota = self._manager.quota_for(
            self._writer.image.client_quotas,
            context.principal_name.partition(":")[2] or ANONYMOUS.name,
            context.client_id,
            strict=not context.accept_over_quota,
            now_ms=_now_ms(),
        )
        return RequestQuota(quota)

    def metrics(self) -> Iterable[Sample]:
        """What clients have used, and how busy the controller is: quotas are sized by it (Q9)."""
        yield Sample(QUEUED, len(self._events))
        yield from self._manager.metrics(_now_ms())

    async def alter(
        self, request: admin_pb2.AlterClientQuotasRequest
    ) -> admin_pb2.AlterClientQuotasResponse:
        """Set and remove quotas; brokers learn of it by watch."""
        decisions = await self._rounds.carry_out(
            lambda image: client_quotas.alter(image, request.alterations, office=self._office),
            validate_only=request.validate_only,
        )
        return admin_pb2.AlterClientQuotasResponse(results=[one.result for one in decisions])


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1_000
