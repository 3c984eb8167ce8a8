"""What a record must satisfy before it takes effect; a refusal is a verdict, not a fault."""

from metadata_log.draft import Draft
from metadata_log.features import METADATA_VERSION
from metadata_log.image import Partition, Topic
from metadata_log.records import ResultCode
from metadata_log.types import (
    ID_BYTES,
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    SessionId,
    TopicId,
    TopicPartition,
)


class Refused(Exception):
    """An operation is refused; becomes its ``OperationResult``."""

    def __init__(self, code: ResultCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class NotInForce(Exception):
    """A transaction holds a record that the metadata version in force does not have yet.

    Voters of the version before cannot read it, and pass it over. So must all others: it leaves
    nothing behind, not even a result for a retry.
    """

    def __init__(self, kind: str, level: int, in_force: int) -> None:
        super().__init__(
            f"{kind} needs {METADATA_VERSION} {level}, and {in_force} is in force: "
            f"quorate features upgrade --feature {METADATA_VERSION} --level {level}"
        )


def require_session(draft: Draft, session_id: SessionId) -> None:
    if draft.sessions.get(session_id) is None:
        raise Refused(ResultCode.SESSION_GONE, f"session {session_id.hex()} is closed")


def require_topic(draft: Draft, name: str, topic_id: TopicId) -> Topic:
    topic = draft.topics.get(name)
    if topic is None or topic.topic_id != topic_id:
        raise Refused(ResultCode.UNKNOWN_TOPIC, f"no topic {name!r} with id {topic_id.hex()}")
    return topic


def require_partition(draft: Draft, tp: TopicPartition, topic_id: TopicId) -> Partition:
    require_topic(draft, tp.topic, topic_id)
    partition = draft.partition(tp)
    if partition is None:
        raise Refused(ResultCode.UNKNOWN_TOPIC, f"no partition {tp}")
    return partition


def require_kept(draft: Draft, tp: TopicPartition) -> None:
    """Leadership of a partition whose removal is pending is as the StopReplica for it says."""
    removal = draft.removals.get(tp.topic)
    if removal is not None and tp.partition >= removal.first_partition:
        raise Refused(ResultCode.UNKNOWN_TOPIC, f"partition {tp} is being removed")


def require_version(tp: TopicPartition, before: Partition, expected: int) -> None:
    if before.version != expected:
        raise Refused(
            ResultCode.VERSION_CONFLICT,
            f"leaderAndISR of {tp} is at version {before.version}, not {expected}",
        )


def require_isr(
    leader: BrokerId, isr: tuple[BrokerId, ...], replicas: tuple[BrokerId, ...]
) -> None:
    """Invariant: a leader is in its ISR, the ISR is among the replicas, nobody is twice."""
    if len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
        raise Refused(ResultCode.INVALID, f"ISR {list(isr)} is not among replicas {list(replicas)}")
    if leader != NO_BROKER and leader not in isr:
        raise Refused(ResultCode.INVALID, f"leader {leader} is not in the ISR {list(isr)}")


def require_controller(draft: Draft, broker_id: BrokerId, epoch: ControllerEpoch) -> None:
    controller = draft.controller
    if controller is None or controller.broker_id != broker_id or draft.controller_epoch != epoch:
        raise Refused(
            ResultCode.CONTROLLER_FENCED,
            f"broker {broker_id} is not the controller of epoch {epoch}: "
            f"the current epoch is {draft.controller_epoch}",
        )


def require_id(what: str, value: bytes) -> None:
    if len(value) != ID_BYTES:
        raise Refused(ResultCode.INVALID, f"{what} has {len(value)} bytes, not {ID_BYTES}")
