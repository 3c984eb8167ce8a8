"""The roles of a replica, and the effects that its state machine asks for.

A ``PartitionReplica`` only decides. ``hosting.partition_table`` carries the effects out, in order.
"""

from enum import Enum, auto
from typing import NamedTuple

from quorate.common.types import LeaderEpoch
from quorate.metadata_log.records import IsrMember


class ReplicaRole(Enum):
    """The part that a replica plays for its partition."""

    IDLE = auto()
    """The replica was stopped, or no command has named it yet. It serves nobody."""
    LEADER = auto()
    SUSPENDED = auto()
    """The replica led until it saw a newer leader epoch. It waits for the next command."""
    FOLLOWER = auto()


class HighWatermarkAdvanced(NamedTuple):
    """Everything below ``offset`` is committed: produce requests that wait for it are answered."""

    offset: int


class ProposeIsr(NamedTuple):
    """Write this ISR by compare-and-set and report the outcome under ``attempt`` (rule 5)."""

    attempt: int
    expected_version: int
    leader_epoch: LeaderEpoch
    members: tuple[IsrMember, ...]


class FailWaiters(NamedTuple):
    """Answer the produce requests that wait for the high watermark with this Kafka error code."""

    error_code: int
    message: str


class SteppedDown(NamedTuple):
    """This replica leads no longer, because it saw a newer leader epoch (rule 6, C15)."""

    newer_epoch: LeaderEpoch


Effect = HighWatermarkAdvanced | ProposeIsr | FailWaiters | SteppedDown

NOTHING: tuple[Effect, ...] = ()
