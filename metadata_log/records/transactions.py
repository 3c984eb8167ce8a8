"""Conditions, operations, transactions, and their results."""

from enum import IntEnum
from typing import ClassVar

from quorate.common.types import (
    NO_BROKER,
    NO_SESSION,
    BrokerId,
    ControllerEpoch,
    Int64,
    MetadataOffset,
    SessionId,
)
from quorate.metadata_log.records.record import Record
from quorate.metadata_log.records.value import MetadataValue


class ControllerEpochIs(MetadataValue, frozen=True, gc=False, kw_only=True, tag=1):
    """The condition that /controller is held and the controller epoch is exactly this."""

    controller_epoch: ControllerEpoch


class Absent(MetadataValue, frozen=True, gc=False, kw_only=True, tag=2):
    """The condition that there is no record at this path."""

    path: str


class AtVersion(MetadataValue, frozen=True, gc=False, kw_only=True, tag=3):
    """The condition that the record at the path is at this version.

    The version is the metadata offset of its last change; leaderAndISR has its own counter.
    """

    path: str
    version: Int64


class SessionAlive(MetadataValue, frozen=True, gc=False, kw_only=True, tag=4):
    """The condition that the session is open."""

    session_id: SessionId


Condition = ControllerEpochIs | Absent | AtVersion | SessionAlive


class Operation(MetadataValue, frozen=True, gc=False, kw_only=True):
    """Records that take effect, in order, if all conditions hold."""

    records: tuple[Record, ...]
    conditions: tuple[Condition, ...] = ()


class Transaction(MetadataValue, frozen=True, gc=False, kw_only=True):
    """The unit of change: one Raft entry, at most ``MAX_ENCODED_BYTES`` on the wire."""

    MAX_ENCODED_BYTES: ClassVar[int] = 1 << 20

    operations: tuple[Operation, ...]
    atomic: bool = True  # Whether all operations take effect or none; else each stands alone.
    client_id: SessionId = NO_SESSION  # The client's session; the quorum's own have none.
    sequence: Int64 = 0  # Grows per client; with client_id it makes a retry exactly-once.
    low_water: Int64 = 0  # Results of this client below this sequence may be forgotten.
    timestamp_ms: Int64 = 0  # Proposer's wall clock: apply has none of its own.
    from_client: bool = False  # Set by the voter that took it, whatever the client says.
    writer: BrokerId = NO_BROKER  # The broker whose certificate brought it: set by that voter, too.


class ResultCode(IntEnum):
    """The reason why an operation was refused. The numbers are those of the proto enum of this
    name.
    """

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


class OperationResult(MetadataValue, frozen=True, gc=False, kw_only=True):
    code: ResultCode = ResultCode.OK
    detail: str = ""
    version: Int64 = 0

    @property
    def ok(self) -> bool:
        return self.code is ResultCode.OK


class TransactionResult(MetadataValue, frozen=True, gc=False, kw_only=True):
    """The result of each operation, and the metadata offset at which the transaction was first
    applied.
    """

    offset: MetadataOffset
    results: tuple[OperationResult, ...]

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)


class OperationRefused(Exception):
    """An operation is refused. ``apply`` turns it into the operation's ``OperationResult``.

    A refusal is a verdict that becomes part of the replicated state; it is not a fault.
    """

    def __init__(self, code: ResultCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
