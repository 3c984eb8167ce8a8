"""What brokers ask the share coordinator, and its answers (KIP-932)."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from quorate.broker.coordinator.share.state.record_state import StateBatch
from quorate.broker.coordinator.share.state.stored_state import (
    NO_EPOCH,
    UNKNOWN_COUNT,
    UNKNOWN_START,
    SharePartitionKey,
    StateWrite,
)
from quorate_proto.v1 import errors_pb2


class Initialize(NamedTuple):
    """Begin, or begin again after a reset, in a later state epoch."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    """Read as the leader of the partition, and refuse leaders of earlier epochs from then on. A
    leader epoch of -1 only looks."""

    key: SharePartitionKey
    leader_epoch: int


class Write(NamedTuple):
    """Add what the leader of the partition says."""

    key: SharePartitionKey
    write: StateWrite


class Delete(NamedTuple):
    """Forget the share-partition."""

    key: SharePartitionKey


class Summarize(NamedTuple):
    """Say how far the group is, without the states of records."""

    key: SharePartitionKey


Question: TypeAlias = Initialize | Read | Write | Delete | Summarize


class Answer(NamedTuple):
    """The answer to a question. With an error the rest means nothing."""

    error_code: int = errors_pb2.NONE
    error_message: str = ""
    state_epoch: int = 0
    leader_epoch: int = NO_EPOCH
    start_offset: int = UNKNOWN_START
    final_records: int = UNKNOWN_COUNT
    batches: Sequence[StateBatch] = ()
