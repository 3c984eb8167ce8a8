"""``Transactions``, the gRPC service for other brokers: it writes markers and verifies
transactions.

A coordinator repeats a marker until it is answered. So a marker may arrive after its own repetition
was written and after the producer's next transaction has begun, which it would end. Such a marker
is recognised by one of three facts: a later request from the same registration of the coordinator's
broker was received; the partition has a later leader epoch, so the repetition may have gone
elsewhere; or another coordinator has ended the transaction (the log knows the epochs of
coordinators).
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

import grpc.aio

from quorate.broker.coordinator.transactions.marker_sender import MarkerWrite
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from quorate.broker.coordinator.transactions.transaction_peers import requested_writes
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.api import MarkerEntry
from quorate.broker.replication.manager import ReplicaManager
from quorate.common.types import BrokerEpoch, BrokerId, TopicPartition
from quorate_proto.v1 import errors_pb2, transactions_pb2, transactions_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class TransactionsService(transactions_pb2_grpc.TransactionsServicer):
    """Serves the transaction requests of other brokers on one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        images: MetadataFollower,
        coordinator: TransactionCoordinator,
    ) -> None:
        self._replicas = replicas
        self._images = images
        self._coordinator = coordinator
        self._newest: dict[BrokerId, tuple[int, int]] = {}
        """The (broker epoch, request number) of the newest request for markers, by coordinator."""

    async def WriteMarkers(
        self, request: transactions_pb2.WriteMarkersRequest, context: Context
    ) -> transactions_pb2.WriteMarkersResponse:
        """Write markers. They are appended before the first await, so requests take effect in
        order."""
        code = self._taken(request)
        if code:
            return transactions_pb2.WriteMarkersResponse(error_code=code)
        writes = requested_writes(request)
        codes = [self._leadership_code(write) for write in writes]
        entries = [
            MarkerEntry(write.tp, write.marker, write.transaction_version)
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
        """Verify or add partitions; adjacent ones of one transaction are looked up together.

        Transactions are added to at the same time: each waits for the log of its coordinator.
        """
        answers = await asyncio.gather(
            *(
                self._answer(whose, [TopicPartition(each.topic, each.partition) for each in group])
                for whose, group in groupby(request.transactions, _whose)
            )
        )
        codes = [code for answer in answers for code in answer]
        return transactions_pb2.VerifyPartitionsResponse(error_codes=codes)

    async def _answer(
        self, whose: tuple[str, ProducerEpoch, bool], tps: Sequence[TopicPartition]
    ) -> list[int]:
        transactional_id, producer, add = whose
        if add:
            found = await self._coordinator.add_for_leader(
                transactional_id, producer, frozenset(tps)
            )
        else:
            found = self._coordinator.verify(transactional_id, producer, frozenset(tps))
        return [found[tp] for tp in tps]

    def _taken(self, request: transactions_pb2.WriteMarkersRequest) -> int:
        """Return an error code unless this is the newest request of the newest registration."""
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


def _whose(query: transactions_pb2.TransactionQuery) -> tuple[str, ProducerEpoch, bool]:
    producer = ProducerEpoch(query.producer_id, query.producer_epoch)
    return query.transactional_id, producer, query.add


def add_transactions_to_server(server: grpc.aio.Server, service: TransactionsService) -> None:
    transactions_pb2_grpc.add_TransactionsServicer_to_server(service, server)
