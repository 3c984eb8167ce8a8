"""The way from a coordinator of transactions to the leaders of their partitions."""

from collections.abc import Awaitable, Collection, Set
from typing import Protocol

from metadata_log.types import TopicPartition


class MarkerSender(Protocol):
    """Has markers written that end a transaction in each of its partitions."""

    def send(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        partitions: Collection[TopicPartition],
    ) -> Awaitable[Set[TopicPartition]]:
        """The partitions that have theirs, committed, or need none: they are deleted.

        It may take as long as a leader is away; what is missing may be sent again.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED: a partition has
                heard of a newer epoch of the producer, or of a newer coordinator: it is for others
                to end the transaction.
        """
