"""The guards of a leader against duplicates, each with a way to take it out; and a slow link.

What flaps show without the guards stands in docs/RULES.md.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.records import produce_api
from quorate.broker.kafka.records.produce_messages import ProduceRequest, ProduceResponse
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.log import LogAppendInfo
from quorate.broker.replication.api import ProduceEntry
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.partition.effects import Effect, FailWaiters
from quorate.broker.replication.partition.partition_replica import PartitionReplica
from quorate.broker.replication.serving import produce
from quorate.broker.replication.serving.sequence_gaps import SequenceGaps
from quorate_proto.v1 import errors_pb2

SLOW: Final = "slow-"
"""The client ids of those that have a slow link begin so."""
TRANSMISSION_S: Final = 0.02


def make(names: Sequence[str]) -> None:
    """Make the changes of these names."""
    for name in names:
        _CHANGES[name]()


def _availability_first() -> None:
    """Too few replicas refuse what is in the log, too."""

    def original(
        hosted: HostedPartition,
        entry: ProduceEntry,
        refusal: KafkaError,
    ) -> LogAppendInfo:
        raise refusal

    produce._original = original


def _early_answers() -> None:
    """Requests that wait are failed when the ISR falls below the minimum."""
    adopted = PartitionReplica._isr_adopted

    def fail(self: PartitionReplica, now_ms: int) -> tuple[Effect, ...]:
        effects = adopted(self, now_ms)
        if not self.has_enough_replicas:
            effects += (FailWaiters(errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few"),)
        return effects

    PartitionReplica._isr_adopted = fail  # type: ignore[method-assign]


def _gaps() -> None:
    """Refuse what comes behind a refused batch as out of order, without an explanation of the
    gap."""

    def explain(*_: object) -> bool:
        return False

    SequenceGaps.explain = explain  # type: ignore[method-assign, assignment]


def _slow_link() -> None:
    """Produce requests of slow clients arrive one after the other.

    So those in flight arrive before and after a change of the ISR, which nobody needs to time.
    """
    handle, begin = produce_api.handle, produce_api.begin
    links: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def handle_later(
        services: KafkaServices, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse:
        if context.client_id.startswith(SLOW):
            async with links[context.client_id]:
                await asyncio.sleep(TRANSMISSION_S)
        return await handle(services, context, request)

    def begin_unless_slow(
        services: KafkaServices, context: RequestContext, request: ProduceRequest
    ) -> produce_api.ProduceInProgress | None:
        return None if context.client_id.startswith(SLOW) else begin(services, context, request)

    produce_api.handle = handle_later
    produce_api.begin = begin_unless_slow


_CHANGES: Final = {
    "availability-first": _availability_first,
    "early-answers": _early_answers,
    "gaps": _gaps,
    "slow-link": _slow_link,
}
