"""The state of a log when its store opens or when the log is created."""

from typing import NamedTuple

from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.segments.batch_index import BatchIndex
from quorate.broker.log.state.leader_epoch_cache import LeaderEpochCache
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.log.state.transactions import PartitionTransactions
from quorate.common.types import TopicPartition


class LogState(NamedTuple):
    """Everything that is known of a log when its store opens, or when it is created."""

    batches: BatchIndex
    leader_epochs: LeaderEpochCache
    producers: ProducerStateManager
    transactions: PartitionTransactions
    log_end_offset: int
    checkpointed_high_watermark: int
    cleaned_offset: int
    """The first offset that compaction has not processed."""
    has_versions: bool
    """Whether segments may hold older versions of its batches, which a truncation must remove,
    too."""


def empty_log(row: PartitionRow) -> LogState:
    """Return the state of a log without batches."""
    where = str(TopicPartition(row.topic, row.partition))
    start = row.log_start_offset
    return LogState(
        BatchIndex(),
        LeaderEpochCache(),
        ProducerStateManager(where),
        PartitionTransactions(where),
        log_end_offset=start,
        checkpointed_high_watermark=start,
        cleaned_offset=start,
        has_versions=False,
    )
