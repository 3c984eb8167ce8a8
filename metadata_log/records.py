"""Records, operations and transactions as frozen values, and what each of them means.

These classes are the wire form as well: ``codec`` writes a value as a MessagePack array of its
fields in the order given here, a record or condition with its tag in front. So tags and the order
of fields never change; a new field goes to the end, with a default. What makes a record valid is
decided in ``apply``.
"""

import re
from enum import IntEnum
from typing import ClassVar, Final, get_args

import msgspec

from metadata_log.types import (
    NO_SESSION,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    Int32,
    Int64,
    LeaderEpoch,
    MetadataOffset,
    SessionId,
    TopicId,
    VoterId,
)


class _Value(msgspec.Struct, frozen=True, gc=False, kw_only=True, array_like=True):
    """Base of all records: immutable, compared by value, outside the cyclic garbage collector."""

    SECRETS: ClassVar[frozenset[str]] = frozenset()
    """Fields that nobody is shown: neither in logs and tracebacks nor by commands."""

    def __repr__(self) -> str:
        fields = (
            f"{name}={'<secret>' if name in self.SECRETS else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        )
        return f"{type(self).__name__}({', '.join(fields)})"


# --- sessions, brokers, the controller ----------------------------------------------------------


class SessionOpened(_Value, frozen=True, gc=False, kw_only=True, tag=1):
    """A session is what an ephemeral node hangs on. Opened by the quorum for a client."""

    session_id: SessionId  # 16 random bytes, made by the voter that proposes it.
    timeout_ms: Int32  # Silence after which the session expires.
    description: str = ""  # Who asked for it, for people: "broker 2".


class SessionClosed(_Value, frozen=True, gc=False, kw_only=True, tag=2):
    """Ends a session; its broker registration and its claim of /controller go with it."""

    session_id: SessionId  # A session already gone makes this a no-op.
    reason: str = "closed"  # "closed", "expired" or "fenced", for people.


class SessionSilence(_Value, frozen=True, gc=False, kw_only=True):
    session_id: SessionId  # One that is gone is passed over.
    quarters: Int32  # Of its timeout, 0 to 4.


class SessionSilences(_Value, frozen=True, gc=False, kw_only=True, tag=16):
    """How long sessions had been silent when their leader took note, for the next one (rule 9)."""

    silences: tuple[SessionSilence, ...]


class ControllerClaim(_Value, frozen=True, gc=False, kw_only=True, tag=3):
    """/controller: the active controller (E1)."""

    broker_id: BrokerId  # The claiming broker; must be registered under session_id.
    session_id: SessionId  # The record lives as long as this session.
    timestamp_ms: Int64  # Claimant's wall clock, ms since the epoch.
    controller_epoch: ControllerEpoch  # The new one; must be the known one + 1 (E2).


class ControllerRemoved(_Value, frozen=True, gc=False, kw_only=True, tag=4):
    """Removes /controller by hand or at resignation (E5)."""

    broker_id: BrokerId  # Only removed if this broker holds it; -1 removes any holder.


class Listener(_Value, frozen=True, gc=False, kw_only=True):
    """One of a broker's doors for Kafka clients."""

    name: str  # "SASL_SSL", or what listener.security.protocol.map calls it.
    endpoint: Endpoint  # Where clients that came by this listener connect.


class BrokerRegistration(_Value, frozen=True, gc=False, kw_only=True, tag=5):
    """/brokers/ids/N. The broker epoch is the metadata offset of this record (B3)."""

    broker_id: BrokerId
    session_id: SessionId  # The registration lives as long as this session.
    incarnation_id: bytes  # 16 random bytes per process start; the same again: the same epoch.
    kafka: Endpoint  # Where Kafka clients connect: the first of ``listeners``.
    grpc: Endpoint  # Where Spark and the quorate client connect.
    rack: str = ""
    log_may_be_lost: bool = False  # rule 8: leaves every ISR before it is eligible.
    inter_broker_protocol_max: Int32 = 2  # Highest control protocol level it understands.
    metadata_version_max: Int32 = 1  # Records up to this level it can read.
    listeners: tuple[Listener, ...] = ()  # All of them; none named: PLAINTEXT at ``kafka``.
    inter_broker: Endpoint | None = None  # Where brokers and the controller connect; None: at grpc.


class BrokerAdmitted(_Value, frozen=True, gc=False, kw_only=True, tag=14):
    """A controller has dealt with this incarnation: it may lead and follow (B3, rule 8)."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # Its incarnation; must be the registered one.


# --- topics and partitions ----------------------------------------------------------------------


class NewPartition(_Value, frozen=True, gc=False, kw_only=True):
    """One partition's replicas and leadership, inside a ``TopicCreated``."""

    replicas: tuple[BrokerId, ...]  # Assigned replicas (AR); the first is preferred.
    leader: BrokerId  # First leader, -1 if none of AR is live.
    isr: tuple[BrokerId, ...]  # First ISR.


class TopicCreated(_Value, frozen=True, gc=False, kw_only=True, tag=6):
    """/brokers/topics/T with all its partitions, and their first leaderAndISR (C4)."""

    name: str
    topic_id: TopicId  # 16 bytes, never used again.
    partitions: tuple[NewPartition, ...]  # Partition 0, 1, 2, ...
    controller_id: BrokerId  # The controller that decided.
    controller_epoch: ControllerEpoch


class TopicRemoved(_Value, frozen=True, gc=False, kw_only=True, tag=7):
    """Removes a topic, its configuration and its pending deletion (C5)."""

    name: str
    topic_id: TopicId  # Must be the id of the topic of that name.


class TopicDeletionPending(_Value, frozen=True, gc=False, kw_only=True, tag=8):
    """/admin/delete_topics/T: a deletion that was accepted and is being carried out."""

    name: str
    topic_id: TopicId  # Must be the id of the topic of that name.


class PartitionChange(_Value, frozen=True, gc=False, kw_only=True, tag=9):
    """The controller's write of a leaderAndISR (C1, C2): leader, ISR, or both."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    partition: Int32
    expected_version: Int64  # Compare-and-set: the record's version before the change.
    leader: BrokerId  # New leader, -1 for none.
    leader_epoch: LeaderEpoch  # Never below the old one.
    isr: tuple[BrokerId, ...]
    controller_id: BrokerId  # Who decided.
    controller_epoch: ControllerEpoch  # In which epoch.


class IsrMember(_Value, frozen=True, gc=False, kw_only=True):
    """A member of an ISR proposed by the leader, with the incarnation the leader saw."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = BrokerEpoch(-1)  # -1 for members already in the ISR.


class IsrChange(_Value, frozen=True, gc=False, kw_only=True, tag=10):
    """The leader's write of its partition's ISR (C1, C13). It can change nothing else."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    partition: Int32
    expected_version: Int64  # Compare-and-set: the record's version before the change.
    leader: BrokerId  # The writer; must be the record's leader.
    leader_broker_epoch: BrokerEpoch  # The writer's incarnation; must be its registration.
    leader_epoch: LeaderEpoch  # Must be the record's leader epoch.
    isr: tuple[IsrMember, ...]  # Contains the leader; additions must be live in that epoch.


class PartitionReassignment(_Value, frozen=True, gc=False, kw_only=True, tag=17):
    """One step of moving a partition's replicas (C11): AR, leaderAndISR and the pending record
    /admin/partitions_reassigned/T/P change together, by compare-and-set on leaderAndISR.

    While it is pending AR holds ``original`` and ``target``, and nobody else.
    """

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    partition: Int32
    expected_version: Int64  # Compare-and-set: leaderAndISR's version before the step.
    replicas: tuple[BrokerId, ...]  # AR from now on; the first is preferred.
    leader: BrokerId  # In the new AR, -1 for none.
    leader_epoch: LeaderEpoch  # Above the old one.
    isr: tuple[BrokerId, ...]  # Of the old ISR, what is in the new AR: nobody is admitted here.
    target: tuple[BrokerId, ...]  # Where it is going; empty: it ends, and is pending no longer.
    original: tuple[BrokerId, ...]  # AR before it began, for who cancels it; empty at the end.
    controller_id: BrokerId  # Who decided.
    controller_epoch: ControllerEpoch  # In which epoch.


class PartitionAdditionPending(_Value, frozen=True, gc=False, kw_only=True, tag=20):
    """/admin/partitions_add/T/P → broker ids: partitions asked for and accepted (C14)."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # Number of the first new one: as many as the topic has.
    replicas: tuple[tuple[BrokerId, ...], ...]  # AR of each new one; the first is preferred.


class PartitionsAdded(_Value, frozen=True, gc=False, kw_only=True, tag=21):
    """The pending partitions become the topic's, with their first leaderAndISR (C14).

    Their first leader epoch is the topic's floor: above that of every partition it ever lost.
    """

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # As it is pending.
    partitions: tuple[NewPartition, ...]  # Replicas as they are pending.
    controller_id: BrokerId  # The controller that decided.
    controller_epoch: ControllerEpoch


class PartitionRemovalPending(_Value, frozen=True, gc=False, kw_only=True, tag=22):
    """/admin/partitions_remove/T/P: a topic's highest partitions are to go (C14)."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # This one and all above; never 0.


class PartitionsRemoved(_Value, frozen=True, gc=False, kw_only=True, tag=23):
    """The partitions whose removal is pending are the topic's no longer (C14)."""

    topic: str
    topic_id: TopicId  # Must be the topic's id.
    first_partition: Int32  # As it is pending.


# --- administration, and the quorum itself ------------------------------------------------------


class ConfigSet(_Value, frozen=True, gc=False, kw_only=True, tag=11):
    """/config/ENTITY: one key of one entity."""

    entity_type: str  # "topic", "broker", ...
    entity_name: str  # "" is the default of the type.
    key: str
    value: str | None  # None removes the key.


class AclAdded(_Value, frozen=True, gc=False, kw_only=True, tag=30):
    """/acls: one access control entry; one that is there already stays. Kafka's numbers."""

    resource_type: Int32
    pattern_type: Int32  # Literal or prefixed.
    resource_name: str  # "*": any.
    principal: str  # "User:alice"; "User:*": anyone.
    host: str  # "*": any.
    operation: Int32
    permission: Int32


class AclRemoved(_Value, frozen=True, gc=False, kw_only=True, tag=31):
    """Removes the access control entry that is the same in everything, if there is one."""

    resource_type: Int32
    pattern_type: Int32
    resource_name: str
    principal: str
    host: str
    operation: Int32
    permission: Int32


class FeatureLevel(_Value, frozen=True, gc=False, kw_only=True, tag=12):
    """/features: a level that gates behaviour and record types."""

    name: str  # "inter_broker_protocol".
    level: Int32  # The level in force.


class ProducerIdBlock(_Value, frozen=True, gc=False, kw_only=True, tag=13):
    """Moves the first unassigned producer id forward: the writer owns [old, next_producer_id)."""

    next_producer_id: Int64  # First id of the next block.


class ClientQuotaSet(_Value, frozen=True, gc=False, kw_only=True, tag=32):
    """/quotas: one quota of a user, a client id or a user's client id (KIP-599, KIP-546)."""

    user: str | None  # "" is the default of users; None: whoever it is.
    client_id: str | None  # As ``user``; one of the two at least is named.
    key: str  # "controller_mutation_rate"; never an alias.
    value: float | None  # Above zero; None removes the key.


class ScramCredential(_Value, frozen=True, gc=False, kw_only=True):
    """What proves a password without being it (RFC 5802): neither the password nor what could take
    its place in a client is ever stored.
    """

    SECRETS: ClassVar[frozenset[str]] = frozenset({"salt", "stored_key", "server_key"})

    salt: bytes
    stored_key: bytes  # H(HMAC(salted password, "Client Key")).
    server_key: bytes  # HMAC(salted password, "Server Key").
    iterations: Int32  # Of the hash that made the salted password.


class ScramCredentialSet(_Value, frozen=True, gc=False, kw_only=True, tag=33):
    """/scram/USER/MECHANISM: sets or replaces a user's credential."""

    user: str
    mechanism: Int32  # Kafka's number: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    credential: ScramCredential


class ScramCredentialRemoved(_Value, frozen=True, gc=False, kw_only=True, tag=34):
    """The user can no longer authenticate by that mechanism."""

    user: str  # Must have such a credential.
    mechanism: Int32  # As in ScramCredentialSet.


class DelegationTokenSet(_Value, frozen=True, gc=False, kw_only=True, tag=35):
    """/tokens/ID: a delegation token, new or renewed (KIP-48).

    Its secret is not here: brokers make it of the id and a key that their configuration alone has.
    """

    token_id: str
    owner: str  # "User:alice": whom it stands for.
    requester: str  # Who made it.
    renewers: tuple[str, ...]  # Who else may renew it and let it end.
    issue_ms: Int64  # Wall clock of the controller, ms since the epoch, as the others.
    expiry_ms: Int64  # It ends then, unless it is renewed.
    max_ms: Int64  # It is never renewed beyond.


class DelegationTokenRemoved(_Value, frozen=True, gc=False, kw_only=True, tag=36):
    """The token is no more: it has ended, or was made to."""

    token_id: str  # One that is gone already makes this a no-op.


class ChangeNote(_Value, frozen=True, gc=False, kw_only=True, tag=37):
    """On whose behalf the records beside it are written: for the audit trail, no state at all."""

    principal: str  # "User:alice"; empty: a direct client that did not say.
    client_host: str
    client_id: str
    api: str  # "CreateTopics".
    forwarded_by: BrokerId = BrokerId(-1)  # The broker that it was asked; -1: the writer itself.


class PipelineTopic(_Value, frozen=True, gc=False, kw_only=True):
    """How far a pipeline is in one topic."""

    topic: str
    topic_id: TopicId  # Offsets of another topic of the same name mean nothing.
    offsets: tuple[Int64, ...]  # By partition: the first that is not done; -1: not begun.


class PipelineRun(_Value, frozen=True, gc=False, kw_only=True):
    """The newest run of a pipeline, under way or over; and the newest commit, perhaps another's."""

    owner: str = ""  # For people: who runs it, where.
    started_ms: Int64 = 0  # Wall clock of the controller, ms since the epoch, as the others.
    lease_until_ms: Int64 = 0  # It is alive until then, unless it says so again; 0: it has ended.
    commit_epoch: Int64 = 0  # The run that the newest commit is of; 0: there is none.
    commit: Int64 = 0  # Its number within that run, from 1.
    committed_ms: Int64 = 0  # When it was.
    rows: Int64 = 0  # Written by all runs, up to that commit.


class PipelineSet(_Value, frozen=True, gc=False, kw_only=True, tag=38):
    """/pipelines/NAME: how far a pipeline is, and who moves it: all of it, in place of the last."""

    BEGIN: ClassVar[int] = 0

    name: str
    expected_version: Int64  # Compare-and-set: the version it replaces; 0: there is none.
    run_epoch: Int64  # The run that writes; BEGIN: a new one, whose epoch is this record's offset.
    sink: str  # Where the rows of the offsets done are.
    topics: tuple[PipelineTopic, ...]
    run: PipelineRun
    rewound: bool = False  # The sink may hold rows at and above the offsets: they are to go first.


class PipelineRemoved(_Value, frozen=True, gc=False, kw_only=True, tag=39):
    """How far the pipeline was is forgotten."""

    name: str
    expected_version: Int64  # Compare-and-set: the version it had.


class QuorumVoter(_Value, frozen=True, gc=False, kw_only=True):
    """A member of the metadata quorum."""

    voter_id: VoterId
    raft: Endpoint  # Where the other voters reach it.
    grpc: Endpoint  # Where clients of the quorum reach it.
    directory_id: bytes = b""  # 16 random bytes in its data folder; empty: not known yet.
    observer: bool = False  # It receives the log, and has no vote yet.


class QuorumVoterSet(_Value, frozen=True, gc=False, kw_only=True, tag=15):
    """/quorum/voters: the whole set, in place of the one before. The quorum's leader's to write."""

    expected_version: Int64  # Compare-and-set: the version it replaces; 0 = there was none.
    voters: tuple[QuorumVoter, ...]  # Differs from the set before by one change of one member.
    metadata_version: Int32 = 1  # Of the first set: what a new cluster begins at.


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
    | AclAdded
    | AclRemoved
    | FeatureLevel
    | ProducerIdBlock
    | QuorumVoterSet
    | SessionSilences
    | PartitionReassignment
    | PartitionAdditionPending
    | PartitionsAdded
    | PartitionRemovalPending
    | PartitionsRemoved
    | ClientQuotaSet
    | ScramCredentialSet
    | ScramCredentialRemoved
    | ChangeNote
    | DelegationTokenSet
    | DelegationTokenRemoved
    | PipelineSet
    | PipelineRemoved
)

_KINDS: Final = {
    kind: re.sub("(?<=.)([A-Z])", r"_\1", kind.__name__).lower() for kind in get_args(Record)
}


KINDS: Final = frozenset(_KINDS.values())
"""All there are, by name."""


def kind_of(record: Record) -> str:
    """Its kind as watches name it: "isr_change"."""
    return _KINDS[type(record)]


# --- transactions -------------------------------------------------------------------------------


class ControllerEpochIs(_Value, frozen=True, gc=False, kw_only=True, tag=1):
    """/controller is held and the controller epoch is exactly this."""

    controller_epoch: ControllerEpoch


class Absent(_Value, frozen=True, gc=False, kw_only=True, tag=2):
    """No record at this path."""

    path: str


class AtVersion(_Value, frozen=True, gc=False, kw_only=True, tag=3):
    """The record at the path is at this version: the metadata offset of its last change.

    For leaderAndISR it is its own counter.
    """

    path: str
    version: Int64


class SessionAlive(_Value, frozen=True, gc=False, kw_only=True, tag=4):
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


class OperationResult(_Value, frozen=True, gc=False, kw_only=True):
    code: ResultCode = ResultCode.OK
    detail: str = ""
    version: Int64 = 0

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
