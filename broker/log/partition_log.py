"""The log of one partition (interface first; see the docstrings)."""

from broker.log.leader_epochs import LeaderEpochHistory
from broker.log.options import Appended, LogRead, Records
from metadata_log.types import LeaderEpoch, TopicIdPartition


class PartitionLog:
    """The log of one partition. Every method runs on the event-loop thread."""

    tip: TopicIdPartition
    topic: str
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int
    checkpointed_high_watermark: int
    leader_epochs: LeaderEpochHistory
    max_batch_bytes: int  # may be set: the topic's max.message.bytes

    def append_as_leader(self, records: Records, leader_epoch: LeaderEpoch) -> Appended:
        """Validate, give offsets from the log end on and the epoch, append all or nothing.

        Raises:
            KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE,
                UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE, KAFKA_STORAGE_ERROR.
        """
        raise NotImplementedError

    def append_as_follower(self, records: Records) -> Appended:
        """Append a leader's batches as they are: the first must begin at the log end.

        Raises:
            KafkaError: as above, and OFFSET_OUT_OF_RANGE if they do not continue the log.
        """
        raise NotImplementedError

    def read(self, start_offset: int, max_bytes: int, up_to_offset: int) -> LogRead:
        """Whole batches from the one that contains ``start_offset``, at least one if there is any.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE outside [log start, log end].
        """
        raise NotImplementedError

    async def truncate_to(self, offset: int) -> None:
        """Drop every batch whose last offset is at or beyond ``offset``; durable on return."""
        raise NotImplementedError

    async def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log starts and ends at ``offset``. Durable on return."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int, up_to_offset: int) -> tuple[int, int] | None:
        """First record below ``up_to_offset`` with timestamp >= ``timestamp_ms``: (offset, ms)."""
        raise NotImplementedError
