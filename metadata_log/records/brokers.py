"""Records of sessions, brokers and the controller."""

from quorate.common.types import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    Int32,
    Int64,
    SessionId,
    TopicId,
)
from quorate.metadata_log.records.value import MetadataValue


class SessionOpened(MetadataValue, frozen=True, gc=False, kw_only=True, tag=1):
    """Opens a session, on which ephemeral records hang. The quorum writes it for a client."""

    session_id: SessionId  # 16 random bytes, made by the voter that proposes it.
    timeout_ms: Int32  # Silence after which the session expires.
    description: str = ""  # Who asked for it, for people: "broker 2".
    broker_id: BrokerId = (
        NO_BROKER  # The broker whose certificate opened it, which alone may use it.
    )


class SessionClosed(MetadataValue, frozen=True, gc=False, kw_only=True, tag=2):
    """Ends a session; its broker registration and its claim of /controller go with it."""

    session_id: SessionId  # A session already gone makes this a no-op.
    reason: str = "closed"  # "closed", "expired" or "fenced", for people.


class SessionSilence(MetadataValue, frozen=True, gc=False, kw_only=True):
    session_id: SessionId  # A session that is gone is skipped.
    quarters: Int32  # Quarters of its timeout, 0 to 4.


class SessionSilences(MetadataValue, frozen=True, gc=False, kw_only=True, tag=16):
    """Notes how long sessions had been silent, for the next leader of the quorum (rule 9)."""

    silences: tuple[SessionSilence, ...]


class ControllerClaim(MetadataValue, frozen=True, gc=False, kw_only=True, tag=3):
    """/controller: the broker claims to be the active controller (E1)."""

    broker_id: BrokerId  # The claiming broker; must be registered under session_id.
    session_id: SessionId  # The record lives as long as this session.
    timestamp_ms: Int64  # Claimant's wall clock, ms since the epoch.
    controller_epoch: ControllerEpoch  # The new epoch; must be the known one + 1 (E2).


class ControllerRemoved(MetadataValue, frozen=True, gc=False, kw_only=True, tag=4):
    """Removes /controller by hand or at resignation (E5)."""

    broker_id: BrokerId  # Only removed if this broker holds it; -1 removes any holder.


class Listener(MetadataValue, frozen=True, gc=False, kw_only=True):
    """One of a broker's listeners for Kafka clients."""

    name: str  # "SASL_SSL", or what listener.security.protocol.map calls it.
    endpoint: Endpoint  # Where clients that came by this listener connect.


class BrokerRegistration(MetadataValue, frozen=True, gc=False, kw_only=True, tag=5):
    """/brokers/ids/N: registers a broker. The broker epoch is the metadata offset of this record
    (B3).
    """

    broker_id: BrokerId
    session_id: SessionId  # The registration lives as long as this session.
    incarnation_id: bytes  # 16 random bytes per process start; the same id keeps its epoch.
    kafka: Endpoint  # Where Kafka clients connect: the first of ``listeners``.
    grpc: Endpoint  # Where Spark and the quorate client connect.
    rack: str = ""
    log_may_be_lost: bool = False  # rule 8: leaves every ISR before it is eligible.
    inter_broker_protocol_max: Int32 = 2  # Highest control protocol level it understands.
    metadata_version_max: Int32 = 1  # It can read records up to this level.
    listeners: tuple[Listener, ...] = ()  # If empty, PLAINTEXT at ``kafka`` is the only one.
    inter_broker: Endpoint | None = None  # For brokers and the controller; None means grpc.


class BrokerAdmitted(MetadataValue, frozen=True, gc=False, kw_only=True, tag=14):
    """A controller has handled the arrival of this incarnation: it may lead and follow (B3, rule
    8).
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # Its incarnation; must be the registered one.


class LostReplica(MetadataValue, frozen=True, gc=False, kw_only=True):
    """A replica that may lack acknowledged records, though its broker has all others."""

    topic_id: TopicId
    partition: Int32


class ReplicasLost(MetadataValue, frozen=True, gc=False, kw_only=True, tag=40):
    """Declares single replicas as lost, with the registration of their broker (rule 8).

    It stands behind the registration in one operation, and replaces what was declared before.
    """

    broker_id: BrokerId
    session_id: SessionId  # The session of the registration.
    replicas: tuple[LostReplica, ...]  # Each leaves its ISR before the broker is admitted.


class FolderMark(MetadataValue, frozen=True, gc=False, kw_only=True):
    """A mark that a broker has written to its log folder before it told the quorum."""

    session_id: SessionId  # The broker's. A session that is gone, or of no broker, is skipped.
    mark: Int64  # It grows with every write to the folder, in steps of some seconds.


class FolderMarks(MetadataValue, frozen=True, gc=False, kw_only=True, tag=41):
    """Notes the marks in the log folders of brokers, so that an old copy of a folder is noticed.

    The leader of the quorum writes it for all brokers together.
    """

    marks: tuple[FolderMark, ...]
