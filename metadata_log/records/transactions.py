"""What records come in: conditions, operations, transactions, and what became of them."""

from enum import IntEnum
from typing import ClassVar

from metadata_log.records.record import Record
from metadata_log.records.value import Value
from metadata_log.types import (
    NO_SESSION,
    ControllerEpoch,
    Int64,
    MetadataOffset,
    SessionId,
)


class ControllerEpochIs(Value, frozen=True, gc=False, kw_only=True, tag=1):
    """/controller is held and the controller epoch is exactly this."""

    controller_epoch: ControllerEpoch


class Absent(Value, frozen=True, gc=False, kw_only=True, tag=2):
    """No record at this path."""

    path: str


class AtVersion(Value, frozen=True, gc=False, kw_only=True, tag=3):
    """The record at the path is at this version: the metadata offset of its last change.

    For leaderAndISR it is its own counter.
    """

    path: str
    version: Int64


class SessionAlive(Value, frozen=True, gc=False, kw_only=True, tag=4):
    """The session is open."""

    session_id: SessionId


Condition = ControllerEpochIs | Absent | AtVersion | SessionAlive


class Operation(Value, frozen=True, gc=False, kw_only=True):
    """Conditions, and the records that take effect, in order, if all of them hold."""

    records: tuple[Record, ...]
    conditions: tuple[Condition, ...] = ()


class Transaction(Value, frozen=True, gc=False, kw_only=True):
    """The unit of change: one Raft entry, at most ``MAX_ENCODED_BYTES`` on the wire."""

    MAX_ENCODED_BYTES: ClassVar[int] = 1 << 20

    operations: tuple[Operation, ...]
    atomic: bool = True  # All operations or none; else each stands alone.
    client_id: SessionId = NO_SESSION  # The client's session; the quorum's own have none.
    sequence: Int64 = 0  # Grows by client; with client_id it makes a retry exactly-once.
    low_water: Int64 = 0  # Results of this client below this sequence may be forgotten.
    timestamp_ms: Int64 = 0  # Proposer's wall clock: apply has none of its own.
    from_client: bool = False  # Said by the voter that took it, whatever the client says.


class ResultCode(IntEnum):
    """Why an operation was refused; same numbers as the proto enum of this name."""

    OK = 0
    CONDITION_FAILED = 1
    SESSION_GONE = 2
    CONTROLLER_FENCED = 3
    VERSION_CONFLICT = 4
    UNKNOWN_TOPIC = 5
    TOPIC_EXISTS = 6
    FENCED_LEADER_EPOCH = 7
    NEWER_LEADER_EPOCH = 8
    INELIGIBLE_REPLICA = 9
    INVALID = 10
    OUTCOME_UNKNOWN = 11
    ABORTED = 12
    STALE_BROKER_EPOCH = 13
    DUPLICATE_BROKER = 14


class OperationResult(Value, frozen=True, gc=False, kw_only=True):
    code: ResultCode = ResultCode.OK
    detail: str = ""
    version: Int64 = 0

    @property
    def ok(self) -> bool:
        return self.code is ResultCode.OK


class TransactionResult(Value, frozen=True, gc=False, kw_only=True):
    """One result per operation, and the metadata offset at which it was first applied."""

    offset: MetadataOffset
    results: tuple[OperationResult, ...]

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)
