"""The messages of a replication stream, as leader and follower see them, whatever carries them."""

from collections.abc import Sequence
from typing import NamedTuple

from quorate.broker.replication.api import Bytes
from quorate.common.types import BrokerEpoch, BrokerId, TopicIdPartition


class ReplicaPosition(NamedTuple):
    """What a follower tells its leader of one partition. The leader remembers it."""

    tip: TopicIdPartition
    current_leader_epoch: int = -1
    """The leader epoch that the follower knows."""
    fetch_offset: int = 0
    """The first offset wanted."""
    flushed_offset: int = 0
    """The end of what the follower has safely; -1 counts for nothing."""
    log_start_offset: int = 0
    forget: bool = False
    """Whether the partition is not fetched on this stream any more. Nothing else counts then."""


class ReplicaFetchRequest(NamedTuple):
    """One frame of a follower."""

    replica_id: BrokerId
    broker_epoch: BrokerEpoch
    """The registration of the follower. Its admission to an ISR is conditional on it."""
    max_wait_ms: int
    max_bytes: int
    """The size at which a response has enough records. At least one batch comes."""
    ack_only: bool
    """Whether the frame tells positions alone and wants no response."""
    positions: Sequence[ReplicaPosition]
    """New and changed positions."""


class FetchedPartition(NamedTuple):
    """The news of one partition. A response is a list of them, in one frame."""

    tip: TopicIdPartition
    error_code: int
    """Kafka's error code, 0 for success."""
    high_watermark: int
    log_start_offset: int
    leader_epoch: int
    size: int = 0
    """The bytes of the records."""
    records: Sequence[Bytes] = ()
    """Whole batches, back to back. A follower gets them as one view of the frame, or none."""
