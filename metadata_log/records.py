"""Records, operations and transactions as frozen values. Their wire form is in ``codec``.

What each record means, and who may write it, is said in ``proto/quorate_proto/v1/metadata.proto``;
what makes one valid is decided in ``apply``.
"""

from enum import IntEnum
from typing import ClassVar

import msgspec

from metadata_log.types import (
    NO_SESSION,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
    VoterId,
)


class _Value(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Base of all records: immutable, compared by value, outside the cyclic garbage collector."""


class SessionOpened(_Value, frozen=True, gc=False, kw_only=True):
    session_id: SessionId
    timeout_ms: int
    description: str = ""


class SessionClosed(_Value, frozen=True, gc=False, kw_only=True):
    session_id: SessionId
    reason: str = "closed"


class ControllerClaim(_Value, frozen=True, gc=False, kw_only=True):
    broker_id: BrokerId
    session_id: SessionId
    timestamp_ms: int
    controller_epoch: ControllerEpoch


class ControllerRemoved(_Value, frozen=True, gc=False, kw_only=True):
    broker_id: BrokerId


class BrokerRegistration(_Value, frozen=True, gc=False, kw_only=True):
    broker_id: BrokerId
    session_id: SessionId
    incarnation_id: bytes
    kafka: Endpoint
    grpc: Endpoint
    rack: str = ""
    log_may_be_lost: bool = False
    inter_broker_protocol_max: int = 2


class BrokerAdmitted(_Value, frozen=True, gc=False, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class NewPartition(_Value, frozen=True, gc=False, kw_only=True):
    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    isr: tuple[BrokerId, ...]


class TopicCreated(_Value, frozen=True, gc=False, kw_only=True):
    name: str
    topic_id: TopicId
    partitions: tuple[NewPartition, ...]
    controller_id: BrokerId
    controller_epoch: ControllerEpoch


class TopicRemoved(_Value, frozen=True, gc=False, kw_only=True):
    name: str
    topic_id: TopicId


class TopicDeletionPending(_Value, frozen=True, gc=False, kw_only=True):
    name: str
    topic_id: TopicId


class PartitionChange(_Value, frozen=True, gc=False, kw_only=True):
    topic: str
    topic_id: TopicId
    partition: int
    expected_version: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_id: BrokerId
    controller_epoch: ControllerEpoch


class IsrMember(_Value, frozen=True, gc=False, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch = BrokerEpoch(-1)


class IsrChange(_Value, frozen=True, gc=False, kw_only=True):
    topic: str
    topic_id: TopicId
    partition: int
    expected_version: int
    leader: BrokerId
    leader_broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch
    isr: tuple[IsrMember, ...]


class ConfigSet(_Value, frozen=True, gc=False, kw_only=True):
    entity_type: str
    entity_name: str
    key: str
    value: str | None


class FeatureLevel(_Value, frozen=True, gc=False, kw_only=True):
    name: str
    level: int


class ProducerIdBlock(_Value, frozen=True, gc=False, kw_only=True):
    next_producer_id: int


class QuorumVoter(_Value, frozen=True, gc=False, kw_only=True):
    voter_id: VoterId
    raft: Endpoint
    grpc: Endpoint
    directory_id: bytes = b""
    observer: bool = False


class QuorumVoterSet(_Value, frozen=True, gc=False, kw_only=True):
    expected_version: int
    voters: tuple[QuorumVoter, ...]


Record = (
    SessionOpened
    | SessionClosed
    | ControllerClaim
    | ControllerRemoved
    | BrokerRegistration
    | BrokerAdmitted
    | TopicCreated
    | TopicRemoved
    | TopicDeletionPending
    | PartitionChange
    | IsrChange
    | ConfigSet
    | FeatureLevel
    | ProducerIdBlock
    | QuorumVoterSet
)


class ControllerEpochIs(_Value, frozen=True, gc=False, kw_only=True):
    """/controller is held and the controller epoch is exactly this."""

    controller_epoch: ControllerEpoch


class Absent(_Value, frozen=True, gc=False, kw_only=True):
    """No record at this path."""

    path: str


class AtVersion(_Value, frozen=True, gc=False, kw_only=True):
    """The record at the path is at this version."""

    path: str
    version: int


class SessionAlive(_Value, frozen=True, gc=False, kw_only=True):
    """The session is open."""

    session_id: SessionId


Condition = ControllerEpochIs | Absent | AtVersion | SessionAlive


class Operation(_Value, frozen=True, gc=False, kw_only=True):
    """Conditions, and the records that take effect, in order, if all of them hold."""

    records: tuple[Record, ...]
    conditions: tuple[Condition, ...] = ()


class Transaction(_Value, frozen=True, gc=False, kw_only=True):
    """The unit of change: one Raft entry, at most ``MAX_ENCODED_BYTES`` on the wire."""

    MAX_ENCODED_BYTES: ClassVar[int] = 1 << 20

    operations: tuple[Operation, ...]
    atomic: bool = True
    client_id: SessionId = NO_SESSION
    sequence: int = 0
    low_water: int = 0
    timestamp_ms: int = 0
    from_client: bool = False


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


class OperationResult(_Value, frozen=True, gc=False, kw_only=True):
    code: ResultCode = ResultCode.OK
    detail: str = ""
    version: int = 0

    @property
    def ok(self) -> bool:
        return self.code is ResultCode.OK


class TransactionResult(_Value, frozen=True, gc=False, kw_only=True):
    """One result per operation, and the metadata offset at which it was first applied."""

    offset: MetadataOffset
    results: tuple[OperationResult, ...]

    @property
    def ok(self) -> bool:
        return all(result.ok for result in self.results)
