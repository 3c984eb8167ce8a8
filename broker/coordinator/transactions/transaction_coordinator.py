"""The transaction coordinator of one broker: its transactional ids, and their background work."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.coordinator import (
    TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.shards.partition_coordinator import PartitionCoordinator
from quorate.broker.coordinator.transactions.marker_sender import MarkerSender
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    ProducerEpoch,
    TransactionMetadata,
)
from quorate.broker.coordinator.transactions.transaction_shard import TransactionShard
from quorate.common.configuration import Values
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

APPEND_TIMEOUT_MS: Final = 30_000
"""The longest wait of a change for all in-sync replicas; Kafka's request.timeout.ms."""


class TransactionSettings(NamedTuple):
    """The configuration of the transaction coordinator; see
    ``quorate.broker.config.coordinator``."""

    max_timeout_ms: int
    abort_interval_ms: int
    expiration_ms: int
    expiration_interval_ms: int

    @classmethod
    def of(cls, config: Values) -> "TransactionSettings":
        return cls(
            config[TRANSACTION_MAX_TIMEOUT_MS],
            config[TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS],
            config[TRANSACTIONAL_ID_EXPIRATION_MS],
            config[TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS],
        )


class TransactionCoordinator(PartitionCoordinator[TransactionShard]):
    """The transaction coordinator of one broker. All methods run on the event loop."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        partition_count: Callable[[str], int],
        markers: MarkerSender,
        producer_ids: ProducerIds,
        wall_ms: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        """``partition_count`` returns the partitions of a topic, 0 if this broker knows none.

        ``transaction_version`` returns the level of that feature.
        """
        super().__init__("transactional id", TRANSACTIONS_TOPIC, partition_count)
        self.settings = settings
        self.timed_out = 0
        """The number of transactions that were aborted because they were open for too long."""
        self._markers = markers
        self._producer_ids = producer_ids
        self._wall_ms = wall_ms
        self._transaction_version = transaction_version

    def _new_shard(self, name: str, log: LedPartition) -> TransactionShard:
        return TransactionShard(
            name,
            log,
            markers=self._markers,
            producer_ids=self._producer_ids,
            wall_ms=self._wall_ms,
            transaction_version=self._transaction_version,
        )

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to abort overdue transactions and to forget expired transactional ids."""
        self.spawn(self._abort_overdue_for_ever())
        self.spawn(self._forget_expired_for_ever())

    # -- requests --------------------------------------------------------------------------------

    def shard_of(self, name: str) -> TransactionShard:
        """Return the shard of a transactional id.

        Raises:
            KafkaError: INVALID_REQUEST, and as ``PartitionCoordinator.shard_of``.
        """
        if not name:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, "transactional.id is empty: a producer needs a name"
            )
        return super().shard_of(name)

    def check_timeout(self, transactional_id: str, timeout_ms: int) -> None:
        """Check a transaction timeout against the configured limit.

        Raises:
            KafkaError: INVALID_TRANSACTION_TIMEOUT.
        """
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(
                errors_pb2.INVALID_TRANSACTION_TIMEOUT,
                f"transactional id {transactional_id!r}: transaction.timeout.ms={timeout_ms} must "
                f"be from 1 to {self.settings.max_timeout_ms} (transaction.max.timeout.ms)",
            )

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Check that partitions are part of the open transaction (KIP-890).

        Return an error code for each, of ``decisions.verify`` or of ``shard_of``.
        """
        try:
            shard = self.shard_of(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return shard.verify(transactional_id, producer, partitions)

    async def add_for_leader(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Add partitions for their leaders; see ``TransactionShard.add_for_leader``.

        Return an error code for each, the same for all.
        """
        try:
            shard = self.shard_of(transactional_id)
            code = await shard.add_for_leader(transactional_id, producer, partitions)
        except KafkaError as error:
            code = error.code
        return dict.fromkeys(partitions, code)

    def find(self, transactional_id: str) -> TransactionMetadata:
        """Return the current metadata of a transactional id.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, and as ``shard_of``.
        """
        found = self.shard_of(transactional_id).transaction(transactional_id)
        if found is None:
            raise KafkaError(
                errors_pb2.TRANSACTIONAL_ID_NOT_FOUND,
                f"transactional id {transactional_id!r} is unknown: nobody has used it, or not for "
                "longer than transactional.id.expiration.ms",
            )
        return found

    def all(self) -> Iterator[tuple[str, TransactionMetadata]]:
        """Yield the transactional ids of this broker; they may come and go while they are
        iterated."""
        for shard in self.loaded_shards():
            yield from shard

    # -- background ------------------------------------------------------------------------------

    async def _abort_overdue_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.abort_interval_ms / 1000)
            for shard in self.loaded_shards():
                self.timed_out += await shard.abort_overdue()

    async def _forget_expired_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.expiration_interval_ms / 1000)
            for shard in self.loaded_shards():
                await shard.forget_expired(self.settings.expiration_ms)
