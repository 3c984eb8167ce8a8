"""What a ``PartitionReplica`` is, is told, and wants done.

The shell carries effects out in order.
"""

from enum import Enum, auto
from typing import NamedTuple

from metadata_log.records import IsrMember
from metadata_log.types import BrokerId, LeaderEpoch


class Role(Enum):
    """What a replica does for its partition."""

    IDLE = auto()
    """Not told yet, or stopped: serves nobody."""
    LEADER = auto()
    SUSPENDED = auto()
    """Led until it saw a newer epoch; waits to be told."""
    FOLLOWER = auto()


class Leadership(NamedTuple):
    """The leaderAndISR of one partition, as a command or a fresh read brings it."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    version: int
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    """Of the replicas, those that are being moved here and not counted on yet (C11)."""


class HighWatermarkAdvanced(NamedTuple):
    """Everything below ``offset`` is committed: produces waiting for it are answered."""

    offset: int


class ProposeIsr(NamedTuple):
    """Write this ISR by compare-and-set and report the outcome under ``attempt`` (rule 5)."""

    attempt: int
    expected_version: int
    leader_epoch: LeaderEpoch
    members: tuple[IsrMember, ...]


class FailWaiters(NamedTuple):
    """Produces waiting for the high watermark fail with this Kafka error code."""

    error_code: int
    message: str


class SteppedDown(NamedTuple):
    """A newer leader epoch was seen: this replica leads no longer (rule 6, C15)."""

    newer_epoch: LeaderEpoch


Effect = HighWatermarkAdvanced | ProposeIsr | FailWaiters | SteppedDown

NOTHING: tuple[Effect, ...] = ()
