"""Asks transaction coordinators whether a partition is part of a transaction, or makes it one
(KIP-890).

A transactional batch opens a transaction in its partition, and only a marker closes it again. The
coordinator may not know that the partition is part of the transaction, because the batch was
delayed until the transaction was over, or because its producer never announced the partition. Then
there will be no marker, and read_committed consumers cannot read beyond it. So the leader asks
before the first batch.

A producer with transactions v2 announces nothing. The leader has the coordinator add the partition
then. While the producer's previous transaction is not complete, the leader asks again for a while,
because a producer pauses before it sends a batch again.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC, partition_of
from quorate.broker.coordinator.shards.shared_requests import RequestsByBroker
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.api import TransactionSupport
from quorate.broker.replication.serving.transaction_verification import TransactionBatch
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import NO_BROKER, BrokerId
from quorate_proto.v1 import errors_pb2, transactions_pb2, transactions_pb2_grpc

_log: Final = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5_000
"""The producer waits meanwhile; its coordinator answers from memory, or once its log has the
partition."""
_PATIENCE_S: Final = 1.0
"""How long the leader asks again while the previous transaction is not complete."""
_PAUSE_S: Final = 0.02

_TRY_AGAIN: Final = frozenset(
    {
        errors_pb2.BROKER_NOT_AVAILABLE,
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
        errors_pb2.COORDINATOR_NOT_AVAILABLE,
        errors_pb2.NOT_COORDINATOR,
        errors_pb2.CONCURRENT_TRANSACTIONS,
    }
)


class LocalCoordinatorSlot:
    """Holds the transaction coordinator of this broker.

    The coordinator writes to replicas, so they are opened before it; and they ask it whenever a
    producer begins a transaction. This slot is made before both.
    """

    def __init__(self) -> None:
        self._coordinator: TransactionCoordinator | None = None

    def fill(self, coordinator: TransactionCoordinator) -> None:
        """Have ``coordinator`` answer from now on."""
        self._coordinator = coordinator

    async def ask(self, batch: TransactionBatch) -> int:
        """Return 0 if the partition is part of the open transaction, or an error code."""
        if self._coordinator is None:
            return errors_pb2.COORDINATOR_NOT_AVAILABLE
        producer = ProducerEpoch(batch.producer_id, batch.producer_epoch)
        whose, tps = (batch.transactional_id, producer), frozenset({batch.tp})
        if batch.support is TransactionSupport.ADDED:
            return (await self._coordinator.add_for_leader(*whose, tps))[batch.tp]
        return self._coordinator.verify(*whose, tps)[batch.tp]


class PartitionVerifier:
    """Verifies transactions for the leaders on one broker. All methods run on the event loop."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        images: MetadataFollower,
        channels: PeerChannels,
        local: LocalCoordinatorSlot,
    ) -> None:
        self._broker_id = identity.broker_id
        self._images = images
        self._channels = channels
        self._local = local
        self._requests: RequestsByBroker[TransactionBatch, int] = RequestsByBroker(
            self._ask, errors_pb2.UNKNOWN_SERVER_ERROR
        )

    async def verify(self, batch: TransactionBatch) -> None:
        """Return if the partition is part of the open transaction of the batch's producer.

        With transactions v2 it becomes a part of it.

        Raises:
            KafkaError: INVALID_TXN_STATE, TRANSACTION_ABORTABLE, INVALID_PRODUCER_EPOCH or
                INVALID_PRODUCER_ID_MAPPING: it is not part of it. NOT_ENOUGH_REPLICAS, as in Kafka:
                it cannot be verified now; producers of all versions send the batch again after this
                error. CONCURRENT_TRANSACTIONS: with transactions v2, the producer's previous
                transaction is not complete.
        """
        code = await self._answer(batch)
        if batch.support is TransactionSupport.ADDED:
            loop = asyncio.get_running_loop()
            until_s = loop.time() + _PATIENCE_S
            while code == errors_pb2.CONCURRENT_TRANSACTIONS and loop.time() < until_s:
                await asyncio.sleep(_PAUSE_S)
                code = await self._answer(batch)
        if code != errors_pb2.NONE:
            raise refusal(batch, code)

    async def _answer(self, batch: TransactionBatch) -> int:
        coordinator = self._coordinator(batch.transactional_id)
        if coordinator == NO_BROKER:
            return errors_pb2.COORDINATOR_NOT_AVAILABLE
        if coordinator == self._broker_id:
            return await self._local.ask(batch)
        return await self._requests.add(coordinator, batch)

    def _coordinator(self, transactional_id: str) -> BrokerId:
        topic = self._images.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return NO_BROKER
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader

    async def _ask(self, broker_id: BrokerId, batches: Sequence[TransactionBatch]) -> Sequence[int]:
        broker = self._images.image.brokers.get(broker_id)
        if broker is None:
            return [errors_pb2.BROKER_NOT_AVAILABLE] * len(batches)
        request = transactions_pb2.VerifyPartitionsRequest(broker_id=self._broker_id)
        for batch in batches:
            request.transactions.add(
                transactional_id=batch.transactional_id,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                topic=batch.tp.topic,
                partition=batch.tp.partition,
                add=batch.support is TransactionSupport.ADDED,
            )
        stub = transactions_pb2_grpc.TransactionsStub(self._channels.get(Peer.of(broker)))
        try:
            answer = await stub.VerifyPartitions(request, timeout=TIMEOUT_MS / 1000)
        except grpc.aio.AioRpcError as error:
            _log.info("broker %d does not verify transactions: %s", broker_id, error.details())
            return [errors_pb2.REQUEST_TIMED_OUT] * len(batches)
        return answer.error_codes


def refusal(batch: TransactionBatch, code: int) -> KafkaError:
    """Return the error for the producer that corresponds to the coordinator's answer."""
    who = (
        f"transactional id {batch.transactional_id!r}, producer {batch.producer_id}, epoch "
        f"{batch.producer_epoch}"
    )
    if code == errors_pb2.CONCURRENT_TRANSACTIONS and batch.support is TransactionSupport.ADDED:
        return KafkaError(
            code, f"{batch.tp}: the previous transaction of {who} is not complete: send it again"
        )
    if code in _TRY_AGAIN:
        return KafkaError(
            errors_pb2.NOT_ENOUGH_REPLICAS,
            f"{batch.tp}: its coordinator cannot tell now whether it is part of the transaction "
            f"of {who} ({error_name(code)}): send the batch again",
        )
    return KafkaError(
        _as_producers_know_it(batch.support, code),
        f"{batch.tp} is not part of a transaction of {who} that is open ({error_name(code)}): "
        "abort it, and begin another one",
    )


def _as_producers_know_it(support: TransactionSupport, code: int) -> int:
    if code == errors_pb2.PRODUCER_FENCED:
        return errors_pb2.INVALID_PRODUCER_EPOCH
    if code == errors_pb2.TRANSACTION_ABORTABLE and support is TransactionSupport.ANNOUNCED:
        return errors_pb2.INVALID_TXN_STATE
    return code
