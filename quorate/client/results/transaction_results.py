"""Transactions, and the producers that partitions know."""

from dataclasses import dataclass

from quorate.client.results.partition_results import PartitionName
from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id as its coordinator knows it; ``open_ms`` is None if no transaction is
    open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    open_ms: int | None
    partitions: tuple[PartitionName, ...]

    @classmethod
    def from_proto(cls, coordinator: int, message: admin_pb2.TransactionListing) -> "Transaction":
        return cls(
            transactional_id=message.transactional_id,
            coordinator=coordinator,
            state=message.state,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            timeout_ms=message.timeout_ms,
            open_ms=_known(message.open_ms),
            partitions=tuple(
                PartitionName(topic=one.topic, partition=one.partition)
                for one in message.partitions
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProducer:
    """A producer as the leader of a partition knows it; a field is None if the value does not
    exist.

    ``idle_ms`` counts from the timestamp of its last record. ``coordinator_epoch`` is that of the
    coordinator that ended its last transaction in the partition.
    """

    topic: str
    partition: int
    leader: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    idle_ms: int | None
    coordinator_epoch: int | None
    transaction_start_offset: int | None

    @property
    def name(self) -> PartitionName:
        return PartitionName(topic=self.topic, partition=self.partition)

    @classmethod
    def from_proto(cls, leader: int, message: admin_pb2.ProducerListing) -> "PartitionProducer":
        return cls(
            topic=message.topic,
            partition=message.partition,
            leader=leader,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            last_sequence=_known(message.last_sequence),
            idle_ms=_known(message.idle_ms),
            coordinator_epoch=_known(message.coordinator_epoch),
            transaction_start_offset=_known(message.transaction_start_offset),
        )


def _known(number: int) -> int | None:
    return None if number < 0 else number
