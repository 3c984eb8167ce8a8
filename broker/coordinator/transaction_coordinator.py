"""The coordinator of transactions: which transactional ids are here, and what is done in time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from typing import Final, NamedTuple

from broker.config.coordinator import (
    TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from broker.coordinator.led_shards import LedLog, LedShards
from broker.coordinator.markers import MarkerSender
from broker.coordinator.topics import TRANSACTIONS_TOPIC
from broker.coordinator.transaction_shard import TransactionShard
from broker.coordinator.transactions.transaction import ProducerEpoch, Transaction
from broker.errors import KafkaError
from metadata_log.configuration import Values
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

APPEND_TIMEOUT_MS: Final = 30_000
"""How long a change waits for all replicas in sync; Kafka's request.timeout.ms."""


class TransactionSettings(NamedTuple):
    """What is configured for transactions; see ``broker.config.coordinator``."""

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


class TransactionCoordinator:
    """Of one broker. On the event loop alone."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        partition_count: Callable[[str], int],
        markers: MarkerSender,
        new_producer_id: Callable[[], Awaitable[int]],
        wall_ms: Callable[[], int],
    ) -> None:
        """``partition_count``: of a topic, as far as this broker knows; 0: there is none.

        ``new_producer_id``: an id that nobody has had; may raise KafkaError.
        """
        self.settings = settings
        self.timed_out = 0
        """Transactions that were aborted because they were open for too long."""
        self._shards = LedShards(
            "transactional id",
            TRANSACTIONS_TOPIC,
            lambda: partition_count(TRANSACTIONS_TOPIC),
            lambda name, log: TransactionShard(
                name, log, markers=markers, new_producer_id=new_producer_id, wall_ms=wall_ms
            ),
        )

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._shards.spawn(self._abort_overdue_for_ever())
        self._shards.spawn(self._forget_expired_for_ever())

    async def close(self) -> None:
        """As ``LedShards.close``."""
        await self._shards.close()

    def lead(self, partition: int, log: LedLog) -> None:
        """As ``LedShards.lead``."""
        self._shards.lead(partition, log)

    def resign(self, partition: int) -> None:
        """As ``LedShards.resign``."""
        self._shards.resign(partition)

    # -- requests --------------------------------------------------------------------------------

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Where the transactional id is.

        Raises:
            KafkaError: INVALID_REQUEST, and as ``LedShards.of``.
        """
        if not transactional_id:
            raise KafkaError(
                errors_pb2.INVALID_REQUEST, "transactional.id is empty: a producer needs a name"
            )
        return self._shards.of(transactional_id)

    def check_timeout(self, transactional_id: str, timeout_ms: int) -> None:
        """Raises: KafkaError: INVALID_TRANSACTION_TIMEOUT."""
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(
                errors_pb2.INVALID_TRANSACTION_TIMEOUT,
                f"transactional id {transactional_id!r}: transaction.timeout.ms={timeout_ms} must "
                f"be from 1 to {self.settings.max_timeout_ms} (transaction.max.timeout.ms)",
            )

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Of each, whether it is in the transaction that is open now (KIP-890): an error code of
        ``decisions.verify``, or of ``shard_of``."""
        try:
            shard = self.shard_of(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return shard.verify(transactional_id, producer, partitions)

    def verify_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, tp: TopicPartition
    ) -> int:
        """As ``verify``, of one partition."""
        return self.verify(transactional_id, ProducerEpoch(producer_id, producer_epoch), {tp})[tp]

    @property
    def is_loading(self) -> bool:
        """Whether there may be transactional ids here that it cannot tell of yet."""
        return self._shards.is_loading

    @property
    def partition_count(self) -> int:
        """Of __transaction_state; 0: there is none yet."""
        return self._shards.partition_count

    def answering(self) -> Iterator[tuple[int, TransactionShard]]:
        """As ``LedShards.answering``."""
        return self._shards.answering()

    def find(self, transactional_id: str) -> Transaction:
        """What is in force.

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

    def all(self) -> Iterator[tuple[str, Transaction]]:
        """The transactional ids that are coordinated here; they may come and go meanwhile."""
        for shard in self._shards:
            yield from shard

    # -- background ------------------------------------------------------------------------------

    async def _abort_overdue_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.abort_interval_ms / 1000)
            for shard in self._shards:
                self.timed_out += shard.abort_overdue()

    async def _forget_expired_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.expiration_interval_ms / 1000)
            for shard in self._shards:
                await shard.forget_expired(self.settings.expiration_ms)
