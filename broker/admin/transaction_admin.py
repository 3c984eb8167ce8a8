"""Administration of transactions over gRPC: those that this broker coordinates or hosts."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from quorate.broker.admin.admin_service import Read
from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    NEVER_MS,
    TransactionMetadata,
    TransactionState,
)
from quorate.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.api import MarkerEntry
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.serving.producer_states import ProducerState, producer_states
from quorate.broker.security.authorizer import Authorizer, caller_of
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import admin_pb2, errors_pb2

_log: Final = logging.getLogger(__name__)

_MARKER_TIMEOUT_MS: Final = 10_000
STATES: Final[Mapping[str, TransactionState]] = {
    state.title.lower(): state for state in TransactionState
}


class TransactionAdmin:
    """Lists and aborts the transactions of one broker."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        replicas: ReplicaManager,
        authorizer: Authorizer,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._coordinator = coordinator
        self._replicas = replicas
        self._authorizer = authorizer
        self._wall_clock_ms = wall_clock_ms

    def methods(self) -> Mapping[str, Read]:
        """Return the methods of the Admin service by name."""
        return {
            "ListTransactions": self.list_transactions,
            "DescribeProducers": self.describe_producers,
            "AbortTransaction": self.abort_transaction,
        }

    async def list_transactions(
        self, request: admin_pb2.ListTransactionsRequest
    ) -> admin_pb2.ListTransactionsResponse:
        """List transactions. Those that the caller may not see are only counted."""
        unknown = [name for name in request.states if name.lower() not in STATES]
        if unknown:
            return admin_pb2.ListTransactionsResponse(
                error_code=errors_pb2.INVALID_REQUEST,
                error_message=f"there is no state {unknown[0]!r}: "
                f"{', '.join(state.title for state in TransactionState)}",
            )
        rights = self._authorizer.rights_of(caller_of(request.context))
        answer = admin_pb2.ListTransactionsResponse(
            partition_count=self._coordinator.partition_count
        )
        now_ms = self._wall_clock_ms()
        known: list[tuple[str, TransactionMetadata]] = []
        for partition, shard in self._coordinator.answering():
            answer.coordinated.append(partition)
            known += shard
        for transactional_id, found in _fitting(known, request, now_ms):
            if rights.may(
                AclOperation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                transactional_id,
                log_denied=False,
            ):
                answer.transactions.append(_listing(transactional_id, found, now_ms))
            else:
                answer.hidden += 1
        return answer

    async def describe_producers(
        self, request: admin_pb2.DescribeProducersRequest
    ) -> admin_pb2.DescribeProducersResponse:
        """Describe producers. The caller must be allowed to read a topic that it names."""
        rights = self._authorizer.rights_of(caller_of(request.context))
        try:
            if request.topic:
                rights.require_topic(AclOperation.READ, request.topic)
        except KafkaError as error:
            return admin_pb2.DescribeProducersResponse(
                error_code=error.code, error_message=error.message
            )
        answer = admin_pb2.DescribeProducersResponse()
        readable: dict[str, bool] = {}
        for hosted in self._led(request):
            topic = hosted.tp.topic
            if topic not in readable:
                readable[topic] = rights.may_topic(AclOperation.READ, topic, log_denied=False)
            if not readable[topic]:
                continue
            states = await producer_states(hosted.log, only_open=request.with_open_transaction)
            now_ms = self._wall_clock_ms()
            answer.producers.extend(_producer(hosted.tp, state, now_ms) for state in states)
        return answer

    async def abort_transaction(
        self, request: admin_pb2.AbortTransactionRequest
    ) -> admin_pb2.AbortTransactionResponse:
        rights = self._authorizer.rights_of(caller_of(request.context))
        try:
            rights.require_cluster(AclOperation.ALTER)
            if request.transactional_id:
                producer_id, epoch = await self._abort(request.transactional_id)
            else:
                tp = TopicPartition(request.topic, request.partition)
                producer_id, epoch = await self._abort_in(tp, request.start_offset)
        except KafkaError as error:
            return admin_pb2.AbortTransactionResponse(
                error_code=error.code, error_message=error.message
            )
        what = request.transactional_id or f"{request.topic}-{request.partition}"
        _log.warning(
            "%s aborted the transaction of %s, producer %d, epoch %d",
            rights.principal,
            what,
            producer_id,
            epoch,
        )
        return admin_pb2.AbortTransactionResponse(producer_id=producer_id, producer_epoch=epoch)

    async def _abort(self, transactional_id: str) -> tuple[int, int]:
        shard = self._coordinator.shard_of(transactional_id)
        producer = await shard.abort(transactional_id)
        return producer.producer_id, producer.epoch

    async def _abort_in(self, tp: TopicPartition, start_offset: int) -> tuple[int, int]:
        """Abort the transaction that begins at ``start_offset``, and return its producer and epoch.

        The marker has the producer epoch and coordinator epoch that the log knows. It is refused if
        either has changed.
        """
        hosted = self._replicas.table.named(tp)
        if hosted is None or not hosted.leads:
            raise KafkaError(*self._replicas.table.not_leader(tp, hosted))
        states = await producer_states(hosted.log, only_open=True)
        found = next((one for one in states if one.transaction_start_offset == start_offset), None)
        if found is None:
            begin = sorted(one.transaction_start_offset for one in states)
            raise KafkaError(
                errors_pb2.INVALID_TXN_STATE,
                f"{tp}: no transaction that is open begins at offset {start_offset}; open ones "
                f"begin at {begin or 'none'}",
            )
        epoch = max(0, found.producer_epoch)
        marker = EndMarker(found.producer_id, epoch, False, max(0, found.coordinator_epoch))
        (code,) = await self._replicas.write_markers([MarkerEntry(tp, marker)], _MARKER_TIMEOUT_MS)
        if code:
            raise KafkaError(code, f"{tp}: the marker was not written, or not for sure: try again")
        return found.producer_id, epoch

    def _led(self, request: admin_pb2.DescribeProducersRequest) -> list[HostedPartition]:
        wanted = set(request.partitions)
        return [
            hosted
            for hosted in tuple(self._replicas.table)
            if hosted.leads
            and (not request.topic or hosted.tp.topic == request.topic)
            and (not wanted or hosted.tp.partition in wanted)
        ]


def _fitting(
    known: Iterable[tuple[str, TransactionMetadata]],
    request: admin_pb2.ListTransactionsRequest,
    now_ms: int,
) -> Iterator[tuple[str, TransactionMetadata]]:
    names, ids = set(request.transactional_ids), set(request.producer_ids)
    states = {STATES[name.lower()] for name in request.states}
    for transactional_id, found in known:
        if (
            (not names or transactional_id in names)
            and (not ids or found.producer_id in ids)
            and (not states or found.state in states)
            and (not request.open_for_ms or _open_ms(found, now_ms) > request.open_for_ms)
        ):
            yield transactional_id, found


def _listing(
    transactional_id: str, found: TransactionMetadata, now_ms: int
) -> admin_pb2.TransactionListing:
    return admin_pb2.TransactionListing(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        state=found.state.title,
        timeout_ms=found.timeout_ms,
        open_ms=_open_ms(found, now_ms),
        partitions=[
            admin_pb2.PartitionRef(topic=tp.topic, partition=tp.partition)
            for tp in sorted(found.partitions)
        ],
    )


def _open_ms(found: TransactionMetadata, now_ms: int) -> int:
    """Return how long the transaction has been open, or -1 if it is neither open nor ending."""
    is_over = found.state is not TransactionState.ONGOING and not found.is_prepared
    return -1 if is_over or found.started_ms == NEVER_MS else max(0, now_ms - found.started_ms)


def _producer(tp: TopicPartition, state: ProducerState, now_ms: int) -> admin_pb2.ProducerListing:
    known = state.last_timestamp_ms >= 0
    return admin_pb2.ProducerListing(
        topic=tp.topic,
        partition=tp.partition,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        idle_ms=max(0, now_ms - state.last_timestamp_ms) if known else -1,
        coordinator_epoch=state.coordinator_epoch,
        transaction_start_offset=state.transaction_start_offset,
    )
