"""``Transactions`` served to brokers: markers of coordinators, questions of leaders.

A coordinator repeats a marker until it is answered, so one may arrive after its own repetition has
been written and the producer's next transaction has begun, which it would end. It is known by one
of three: from the same registration of the coordinator's broker a later request has been here; the
partition is led in a later epoch, so the repetition may have gone elsewhere; or another coordinator
has ended the transaction (the log knows the epochs of coordinators).
"""

from collections.abc import Mapping, Sequence, Set
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import grpc.aio

from broker.control.ports import Images
from broker.coordinator.marker_sender import MarkerWrite
from broker.coordinator.transaction_peers import requested_writes
from broker.coordinator.transactions.transaction import ProducerEpoch
from broker.replication.api import MarkerEntry
from metadata_log.types import BrokerEpoch, BrokerId, TopicPartition
from quorate_proto.v1 import errors_pb2, transactions_pb2, transactions_pb2_grpc

if TYPE_CHECKING:
    from broker.replication.hosted import HostedPartition

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class HostedPartitions(Protocol):
    """``PartitionTable``."""

    def named(self, tp: TopicPartition) -> "HostedPartition | None": ...


class MarkedReplicas(Protocol):
    """``ReplicaManager``."""

    @property
    def table(self) -> HostedPartitions: ...

    async def write_markers(
        self, entries: Sequence[MarkerEntry], timeout_ms: int
    ) -> Sequence[int]: ...


class Verifier(Protocol):
    """``TransactionCoordinator``."""

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Of each, 0 if it is part of that producer's ongoing transaction, else why not."""


class TransactionsService(transactions_pb2_grpc.TransactionsServicer):
    """Of one broker."""

    def __init__(self, replicas: MarkedReplicas, images: Images, verifier: Verifier) -> None:
        self._replicas = replicas
        self._images = images
        self._verifier = verifier
        self._newest: dict[BrokerId, tuple[int, int]] = {}
        """(broker epoch, request number) of the newest request for markers, by coordinator."""

    async def WriteMarkers(
        self, request: transactions_pb2.WriteMarkersRequest, context: Context
    ) -> transactions_pb2.WriteMarkersResponse:
        """Appends before its first await: requests take effect in the order they come in."""
        code = self._taken(request)
        if code:
            return transactions_pb2.WriteMarkersResponse(error_code=code)
        writes = requested_writes(request)
        codes = [self._leadership_code(write) for write in writes]
        entries = [
            MarkerEntry(write.tp, write.marker)
            for write, code in zip(writes, codes, strict=True)
            if not code
        ]
        written = iter(await self._replicas.write_markers(entries, request.timeout_ms))
        return transactions_pb2.WriteMarkersResponse(
            partition_error_codes=[code or next(written) for code in codes]
        )

    async def VerifyPartitions(
        self, request: transactions_pb2.VerifyPartitionsRequest, context: Context
    ) -> transactions_pb2.VerifyPartitionsResponse:
        """Partitions of one transaction come side by side, and are looked up at once."""
        codes: list[int] = []
        for (transactional_id, producer), group in groupby(request.transactions, _whose):
            tps = [TopicPartition(query.topic, query.partition) for query in group]
            found = self._verifier.verify(transactional_id, producer, frozenset(tps))
            codes += [found[tp] for tp in tps]
        return transactions_pb2.VerifyPartitionsResponse(error_codes=codes)

    def _taken(self, request: transactions_pb2.WriteMarkersRequest) -> int:
        """An error code unless it is the newest request of the newest registration."""
        broker_id = BrokerId(request.broker_id)
        registered = self._images.image.brokers.get(broker_id)
        if registered is not None and BrokerEpoch(request.broker_epoch) < registered.epoch:
            return errors_pb2.STALE_BROKER_EPOCH
        place = (request.broker_epoch, request.request_number)
        if place <= self._newest.get(broker_id, (0, 0)):
            return errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._newest[broker_id] = place
        return errors_pb2.NONE

    def _leadership_code(self, write: MarkerWrite) -> int:
        hosted = self._replicas.table.named(write.tp)
        if hosted is None:
            return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        if not hosted.leads:
            return errors_pb2.NOT_LEADER_OR_FOLLOWER
        if write.leader_epoch < hosted.replica.leader_epoch:
            return errors_pb2.FENCED_LEADER_EPOCH
        if write.leader_epoch > hosted.replica.leader_epoch:
            return errors_pb2.UNKNOWN_LEADER_EPOCH
        return errors_pb2.NONE


def _whose(query: transactions_pb2.TransactionQuery) -> tuple[str, ProducerEpoch]:
    return query.transactional_id, ProducerEpoch(query.producer_id, query.producer_epoch)


def add_transactions_to_server(server: grpc.aio.Server, service: TransactionsService) -> None:
    transactions_pb2_grpc.add_TransactionsServicer_to_server(service, server)
