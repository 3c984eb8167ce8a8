"""What each record does to the draft, and when it is refused. One small function per record."""

from collections.abc import Callable
from typing import Any

import immutables

from metadata_log.draft import Draft
from metadata_log.image import (
    Broker,
    Controller,
    EntityKey,
    Partition,
    Topic,
    TopicDeletion,
    interned,
)
from metadata_log.records import (
    BrokerAdmitted,
    BrokerRegistration,
    ConfigSet,
    ControllerClaim,
    ControllerRemoved,
    FeatureLevel,
    IsrChange,
    NewPartition,
    PartitionChange,
    ProducerIdBlock,
    Record,
    ResultCode,
    SessionClosed,
    SessionOpened,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from metadata_log.types import (
    ID_BYTES,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
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


def apply_record(draft: Draft, offset: MetadataOffset, record: Record) -> int:
    """Write ``record`` into ``draft``; returns the version of what was written.

    Raises:
        Refused: the record breaks a rule. The draft may hold a part of it: undo it.
    """
    return _RULES[type(record)](draft, offset, record)


def needs_controller(record: Record) -> bool:
    """Whether an operation with this record must name the controller epoch it was decided in."""
    return type(record) in _CONTROLLER_ONLY


# --- sessions -----------------------------------------------------------------------------------


def _session_opened(draft: Draft, offset: MetadataOffset, record: SessionOpened) -> int:
    _require_id("session id", record.session_id)
    if record.timeout_ms <= 0:
        raise Refused(ResultCode.INVALID, f"session timeout {record.timeout_ms} ms is not positive")
    if draft.sessions.get(record.session_id) is not None:
        raise Refused(ResultCode.CONDITION_FAILED, f"session {record.session_id.hex()} exists")
    draft.sessions.put(record.session_id, record)
    return offset


def _session_closed(draft: Draft, offset: MetadataOffset, record: SessionClosed) -> int:
    """The session and all that hangs on it go together: registration, /controller, results."""
    if draft.sessions.get(record.session_id) is None:
        return offset
    draft.sessions.remove(record.session_id)
    draft.results.remove(record.session_id)
    for broker_id, broker in list(draft.brokers.items()):
        if broker.registration.session_id == record.session_id:
            draft.brokers.remove(broker_id)
    controller = draft.controller
    if controller is not None and controller.session_id == record.session_id:
        draft.controller = None
    return offset


def _require_session(draft: Draft, session_id: SessionId) -> None:
    if draft.sessions.get(session_id) is None:
        raise Refused(ResultCode.SESSION_GONE, f"session {session_id.hex()} is closed")


# --- brokers and the controller -----------------------------------------------------------------


def _broker_registration(draft: Draft, offset: MetadataOffset, record: BrokerRegistration) -> int:
    """Same incarnation, same epoch; another one waits until the old session is gone (B3)."""
    _require_session(draft, record.session_id)
    _require_id("incarnation id", record.incarnation_id)
    if record.broker_id < 0:
        raise Refused(ResultCode.INVALID, f"broker id {record.broker_id} is negative")
    before = draft.brokers.get(record.broker_id)
    epoch = BrokerEpoch(offset)
    admitted = False
    if before is not None:
        if before.registration.incarnation_id != record.incarnation_id:
            raise Refused(
                ResultCode.DUPLICATE_BROKER,
                f"broker id {record.broker_id} is registered by another live process "
                f"at {before.kafka} (epoch {before.epoch})",
            )
        epoch = before.epoch
        admitted = before.admitted
    draft.brokers.put(record.broker_id, Broker(record, epoch, admitted))
    return epoch


def _broker_admitted(draft: Draft, offset: MetadataOffset, record: BrokerAdmitted) -> int:
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.epoch != record.broker_epoch:
        raise Refused(
            ResultCode.STALE_BROKER_EPOCH,
            f"broker {record.broker_id} is not registered at epoch {record.broker_epoch}",
        )
    draft.brokers.put(record.broker_id, Broker(broker.registration, broker.epoch, admitted=True))
    return broker.epoch


def _controller_claim(draft: Draft, offset: MetadataOffset, record: ControllerClaim) -> int:
    """First to claim wins, one epoch up (E1, E2)."""
    _require_session(draft, record.session_id)
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.registration.session_id != record.session_id:
        raise Refused(
            ResultCode.INVALID, f"broker {record.broker_id} is not registered under this session"
        )
    if draft.controller is not None:
        raise Refused(
            ResultCode.CONDITION_FAILED, f"broker {draft.controller.broker_id} is the controller"
        )
    if record.controller_epoch != draft.controller_epoch + 1:
        raise Refused(
            ResultCode.CONTROLLER_FENCED,
            f"controller epoch {record.controller_epoch} does not follow {draft.controller_epoch}",
        )
    draft.controller = Controller(record.broker_id, record.session_id, record.timestamp_ms, offset)
    draft.controller_epoch = record.controller_epoch
    return offset


def _controller_removed(draft: Draft, offset: MetadataOffset, record: ControllerRemoved) -> int:
    controller = draft.controller
    if controller is None:
        raise Refused(ResultCode.CONDITION_FAILED, "/controller is held by nobody")
    if record.broker_id not in (NO_BROKER, controller.broker_id):
        raise Refused(
            ResultCode.CONDITION_FAILED, f"/controller is held by broker {controller.broker_id}"
        )
    draft.controller = None
    return offset


# --- topics -------------------------------------------------------------------------------------


def _topic_created(draft: Draft, offset: MetadataOffset, record: TopicCreated) -> int:
    _require_controller(draft, record.controller_id, record.controller_epoch)
    _require_id("topic id", record.topic_id)
    if draft.topics.get(record.name) is not None:
        raise Refused(ResultCode.TOPIC_EXISTS, f"topic {record.name!r} exists")
    if draft.topic_names.get(record.topic_id) is not None:
        raise Refused(ResultCode.INVALID, f"topic id {record.topic_id.hex()} is taken")
    if not record.partitions:
        raise Refused(ResultCode.INVALID, f"topic {record.name!r} has no partitions")
    partitions = tuple(_first_leaf(record, new) for new in record.partitions)
    draft.topics.put(record.name, Topic(record.name, record.topic_id, partitions, offset))
    draft.topic_names.put(record.topic_id, record.name)
    return offset


def _first_leaf(record: TopicCreated, new: NewPartition) -> Partition:
    if not new.replicas or len(set(new.replicas)) != len(new.replicas):
        raise Refused(
            ResultCode.INVALID, f"replicas {list(new.replicas)} of {record.name!r} are not distinct"
        )
    _require_isr(new.leader, new.isr, new.replicas)
    return Partition(
        replicas=interned(new.replicas),
        leader=new.leader,
        leader_epoch=LeaderEpoch(0),
        isr=interned(new.isr),
        controller_id=record.controller_id,
        controller_epoch=record.controller_epoch,
    )


def _topic_deletion_pending(
    draft: Draft, offset: MetadataOffset, record: TopicDeletionPending
) -> int:
    _require_topic(draft, record.name, record.topic_id)
    if draft.deletions.get(record.name) is None:
        draft.deletions.put(record.name, TopicDeletion(record.topic_id, offset))
    return offset


def _topic_removed(draft: Draft, offset: MetadataOffset, record: TopicRemoved) -> int:
    topic = _require_topic(draft, record.name, record.topic_id)
    draft.drop_partitions(topic)
    draft.topics.remove(record.name)
    draft.topic_names.remove(record.topic_id)
    draft.deletions.remove(record.name)
    draft.configs.remove(EntityKey(("topic", record.name)))
    return offset


def _require_topic(draft: Draft, name: str, topic_id: TopicId) -> Topic:
    topic = draft.topics.get(name)
    if topic is None or topic.topic_id != topic_id:
        raise Refused(ResultCode.UNKNOWN_TOPIC, f"no topic {name!r} with id {topic_id.hex()}")
    return topic


# --- leaderAndISR -------------------------------------------------------------------------------


def _partition_change(draft: Draft, offset: MetadataOffset, record: PartitionChange) -> int:
    """The controller's write (C1, C2)."""
    _require_controller(draft, record.controller_id, record.controller_epoch)
    tp = TopicPartition(record.topic, record.partition)
    before = _require_partition(draft, tp, record.topic_id)
    _require_version(tp, before, record.expected_version)
    floor = before.leader_epoch + (record.leader != before.leader)
    if record.leader_epoch < floor:
        raise Refused(
            ResultCode.FENCED_LEADER_EPOCH,
            f"leader epoch {record.leader_epoch} of {tp} is below {floor}",
        )
    _require_isr(record.leader, record.isr, before.replicas)
    return _put_leaf(
        draft,
        tp,
        Partition(
            replicas=before.replicas,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            isr=interned(record.isr),
            controller_id=record.controller_id,
            controller_epoch=record.controller_epoch,
            version=before.version + 1,
        ),
    )


def _isr_change(draft: Draft, offset: MetadataOffset, record: IsrChange) -> int:
    """The leader's write (C1, C13): the ISR alone, and only while it leads in this epoch (C15)."""
    tp = TopicPartition(record.topic, record.partition)
    before = _require_partition(draft, tp, record.topic_id)
    _require_leadership(draft, tp, before, record)
    _require_version(tp, before, record.expected_version)
    isr = tuple(member.broker_id for member in record.isr)
    _require_isr(record.leader, isr, before.replicas)
    for member in record.isr:
        if member.broker_id not in before.isr:
            _require_eligible(draft, tp, member.broker_id, member.broker_epoch)
    return _put_leaf(
        draft,
        tp,
        Partition(
            replicas=before.replicas,
            leader=before.leader,
            leader_epoch=before.leader_epoch,
            isr=interned(isr),
            controller_id=before.controller_id,
            controller_epoch=before.controller_epoch,
            version=before.version + 1,
        ),
    )


def _put_leaf(draft: Draft, tp: TopicPartition, leaf: Partition) -> int:
    draft.put_partition(tp, leaf)
    return leaf.version


def _require_leadership(
    draft: Draft, tp: TopicPartition, before: Partition, record: IsrChange
) -> None:
    if record.leader_epoch < before.leader_epoch:
        raise Refused(
            ResultCode.FENCED_LEADER_EPOCH,
            f"leader epoch {record.leader_epoch} of {tp} is older than {before.leader_epoch}",
        )
    if record.leader_epoch > before.leader_epoch:
        raise Refused(
            ResultCode.NEWER_LEADER_EPOCH,
            f"leader epoch {record.leader_epoch} of {tp} is newer than {before.leader_epoch}",
        )
    if record.leader != before.leader:
        raise Refused(
            ResultCode.INVALID, f"broker {record.leader} does not lead {tp}: {before.leader} does"
        )
    broker = draft.brokers.get(record.leader)
    if broker is None or broker.epoch != record.leader_broker_epoch:
        raise Refused(
            ResultCode.STALE_BROKER_EPOCH,
            f"broker {record.leader} is not registered at epoch {record.leader_broker_epoch}",
        )


def _require_eligible(
    draft: Draft, tp: TopicPartition, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> None:
    broker = draft.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        found = "not live" if broker is None else f"at epoch {broker.epoch}"
        raise Refused(
            ResultCode.INELIGIBLE_REPLICA,
            f"broker {broker_id} cannot join the ISR of {tp}: it is {found}, not {broker_epoch}",
        )


def _require_partition(draft: Draft, tp: TopicPartition, topic_id: TopicId) -> Partition:
    _require_topic(draft, tp.topic, topic_id)
    partition = draft.partition(tp)
    if partition is None:
        raise Refused(ResultCode.UNKNOWN_TOPIC, f"no partition {tp}")
    return partition


def _require_version(tp: TopicPartition, before: Partition, expected: int) -> None:
    if before.version != expected:
        raise Refused(
            ResultCode.VERSION_CONFLICT,
            f"leaderAndISR of {tp} is at version {before.version}, not {expected}",
        )


def _require_isr(
    leader: BrokerId, isr: tuple[BrokerId, ...], replicas: tuple[BrokerId, ...]
) -> None:
    """Invariant: a leader is in its ISR, the ISR is among the replicas, nobody is twice."""
    if len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
        raise Refused(ResultCode.INVALID, f"ISR {list(isr)} is not among replicas {list(replicas)}")
    if leader != NO_BROKER and leader not in isr:
        raise Refused(ResultCode.INVALID, f"leader {leader} is not in the ISR {list(isr)}")


# --- administration -----------------------------------------------------------------------------


def _config_set(draft: Draft, offset: MetadataOffset, record: ConfigSet) -> int:
    entity = EntityKey((record.entity_type, record.entity_name))
    before = draft.configs.get(entity) or immutables.Map()
    if record.value is not None:
        draft.configs.put(entity, before.set(record.key, record.value))
    elif record.key in before:
        after = before.delete(record.key)
        if after:
            draft.configs.put(entity, after)
        else:
            draft.configs.remove(entity)
    return offset


def _feature_level(draft: Draft, offset: MetadataOffset, record: FeatureLevel) -> int:
    draft.features.put(record.name, record.level)
    return offset


def _producer_id_block(draft: Draft, offset: MetadataOffset, record: ProducerIdBlock) -> int:
    if record.next_producer_id <= draft.next_producer_id:
        raise Refused(
            ResultCode.CONDITION_FAILED,
            f"producer ids up to {draft.next_producer_id} are assigned already",
        )
    draft.next_producer_id = record.next_producer_id
    return record.next_producer_id


# --- shared -------------------------------------------------------------------------------------


def _require_controller(draft: Draft, broker_id: BrokerId, epoch: ControllerEpoch) -> None:
    controller = draft.controller
    if controller is None or controller.broker_id != broker_id or draft.controller_epoch != epoch:
        raise Refused(
            ResultCode.CONTROLLER_FENCED,
            f"broker {broker_id} is not the controller of epoch {epoch}: "
            f"the current epoch is {draft.controller_epoch}",
        )


def _require_id(what: str, value: bytes) -> None:
    if len(value) != ID_BYTES:
        raise Refused(ResultCode.INVALID, f"{what} has {len(value)} bytes, not {ID_BYTES}")


_CONTROLLER_ONLY = frozenset(
    {
        TopicCreated,
        TopicRemoved,
        TopicDeletionPending,
        PartitionChange,
        ConfigSet,
        FeatureLevel,
        ProducerIdBlock,
        BrokerAdmitted,
    }
)

_RULES: dict[type, Callable[[Draft, MetadataOffset, Any], int]] = {
    SessionOpened: _session_opened,
    SessionClosed: _session_closed,
    BrokerRegistration: _broker_registration,
    BrokerAdmitted: _broker_admitted,
    ControllerClaim: _controller_claim,
    ControllerRemoved: _controller_removed,
    TopicCreated: _topic_created,
    TopicDeletionPending: _topic_deletion_pending,
    TopicRemoved: _topic_removed,
    PartitionChange: _partition_change,
    IsrChange: _isr_change,
    ConfigSet: _config_set,
    FeatureLevel: _feature_level,
    ProducerIdBlock: _producer_id_block,
}
