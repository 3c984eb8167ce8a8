"""The paths at which a record writes, looked up in the draft that it is about to change.

A partition stands for its leaderAndISR, without the path: a record may create, move or remove
thousands of them, and the caller wants the leaf. The order is the same for every reader: one that
lost its connection continues by counting.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from quorate.common.types import SessionId, TopicPartition
from quorate.metadata_log import paths
from quorate.metadata_log.acls import AclPattern
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import METADATA_VERSION
from quorate.metadata_log.records import (
    AclAdded,
    AclRemoved,
    BrokerAdmitted,
    BrokerRegistration,
    ChangeNote,
    ClientQuotaSet,
    ConfigSet,
    ControllerClaim,
    ControllerRemoved,
    DelegationTokenRemoved,
    DelegationTokenSet,
    FeatureLevel,
    FolderMarks,
    IpQuotaSet,
    IsrChange,
    PartitionAdditionPending,
    PartitionChange,
    PartitionReassignment,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
    PipelineRemoved,
    PipelineSet,
    ProducerIdBlock,
    QuorumVoterSet,
    Record,
    ReplicasLost,
    ScramCredentialRemoved,
    ScramCredentialSet,
    ScramDecoyKeySet,
    SessionClosed,
    SessionOpened,
    SessionSilences,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from quorate.metadata_log.rules.administration import MECHANISMS
from quorate.metadata_log.tree.acl_tree import parts_of
from quorate.metadata_log.tree.values import quoted

Place = str | TopicPartition
"""A path; or a partition, which stands for the path of its leaderAndISR."""


def touched(draft: Draft, record: Record) -> Iterable[Place]:
    """Return the places where ``record`` writes or may write. Some may be empty before
    and after.
    """
    return _TOUCHED[type(record)](draft, record)


def feature_path(name: str) -> str:
    return f"/features/{name}"


def session_path(session_id: SessionId) -> str:
    return f"/sessions/{session_id.hex()}"


def config_path(entity_type: str, entity_name: str) -> str:
    return f"/config/{entity_type}/{quoted(entity_name)}"


# --- sessions and topics: what hangs on them goes with them -------------------------------------


def _session_closed(draft: Draft, record: SessionClosed) -> Iterator[Place]:
    yield session_path(record.session_id)
    for broker_id, broker in sorted(draft.brokers.items()):
        if broker.registration.session_id == record.session_id:
            yield paths.broker_path(broker_id)
    controller = draft.controller
    if controller is not None and controller.session_id == record.session_id:
        yield paths.CONTROLLER


def _topic_created(draft: Draft, record: TopicCreated) -> Iterator[Place]:
    yield paths.topic_path(record.name)
    yield from _partitions(record.name, 0, len(record.partitions))


def _topic_removed(draft: Draft, record: TopicRemoved) -> Iterator[Place]:
    name, topic = record.name, draft.topics.get(record.name)
    yield paths.topic_path(name)
    yield paths.deletion_path(name)
    yield config_path("topic", name)
    yield from _partitions(name, 0, 0 if topic is None else len(topic.partitions))
    for number in sorted(draft.reassignments.get(name) or ()):
        yield paths.reassignment_path(TopicPartition(name, number))
    yield from _additions(draft, name)
    yield from _removals(draft, name, None)


def _partition_reassignment(draft: Draft, record: PartitionReassignment) -> Iterator[Place]:
    tp = TopicPartition(record.topic, record.partition)
    yield tp
    yield paths.reassignment_path(tp)


def _addition_pending(draft: Draft, record: PartitionAdditionPending) -> Iterator[Place]:
    first = record.first_partition
    for tp in _partitions(record.topic, first, first + len(record.replicas)):
        yield paths.addition_path(tp)


def _partitions_added(draft: Draft, record: PartitionsAdded) -> Iterator[Place]:
    first = record.first_partition
    yield paths.topic_path(record.topic)
    yield from _partitions(record.topic, first, first + len(record.partitions))
    yield from _additions(draft, record.topic)


def _partitions_removed(draft: Draft, record: PartitionsRemoved) -> Iterator[Place]:
    topic = draft.topics.get(record.topic)
    yield paths.topic_path(record.topic)
    if topic is not None:
        yield from _partitions(record.topic, record.first_partition, len(topic.partitions))
    yield from _removals(draft, record.topic, None)


def _partitions(name: str, first: int, end: int) -> Iterator[TopicPartition]:
    return (TopicPartition(name, number) for number in range(first, end))


def _additions(draft: Draft, name: str) -> Iterator[Place]:
    pending = draft.additions.get(name)
    if pending is not None:
        first = pending.first_partition
        for tp in _partitions(name, first, first + len(pending.replicas)):
            yield paths.addition_path(tp)


def _removals(draft: Draft, name: str, first: int | None) -> Iterator[Place]:
    """Return the places from ``first`` on. If it is None, the pending removal says where they
    begin.
    """
    pending, topic = draft.removals.get(name), draft.topics.get(name)
    if first is None and pending is not None:
        first = pending.first_partition
    if first is not None and topic is not None:
        for tp in _partitions(name, first, len(topic.partitions)):
            yield paths.removal_path(tp)


# --- single records -----------------------------------------------------------------------------


def _voter_set(draft: Draft, record: QuorumVoterSet) -> list[Place]:
    """Return the places of a voter set. The first set also says which records a new quorum may
    write.
    """
    begins = not draft.voter_set.version and draft.features.get(METADATA_VERSION) is None
    return [paths.QUORUM_VOTERS, *([feature_path(METADATA_VERSION)] if begins else [])]


def _partition(draft: Draft, record: PartitionChange | IsrChange) -> list[Place]:
    return [TopicPartition(record.topic, record.partition)]


def _broker(
    draft: Draft, record: BrokerRegistration | BrokerAdmitted | ReplicasLost
) -> list[Place]:
    return [paths.broker_path(record.broker_id)]


def _acl(draft: Draft, record: AclAdded | AclRemoved) -> list[Place]:
    pattern = AclPattern(record.resource_type, record.pattern_type, record.resource_name)
    return ["/acls/" + "/".join(parts_of(pattern, quoted))]


def _quota(draft: Draft, record: ClientQuotaSet) -> list[Place]:
    client = "" if record.client_id is None else f"/clients/{quoted(record.client_id)}"
    if record.user is None:
        return [f"/quotas{client}"]
    return [f"/quotas/users/{quoted(record.user)}{client}"]


def _scram(draft: Draft, record: ScramCredentialSet | ScramCredentialRemoved) -> list[Place]:
    mechanism = MECHANISMS.get(record.mechanism, str(record.mechanism))
    return [f"/scram/{quoted(record.user)}/{mechanism}"]


def _token(draft: Draft, record: DelegationTokenSet | DelegationTokenRemoved) -> list[Place]:
    return [paths.token_path(record.token_id)]


_TOUCHED: Final[dict[type, Callable[[Draft, Any], Iterable[Place]]]] = {
    SessionOpened: lambda draft, record: [session_path(record.session_id)],
    SessionClosed: _session_closed,
    SessionSilences: lambda draft, record: (),  # It has no place in the tree.
    ControllerClaim: lambda draft, record: [paths.CONTROLLER, paths.CONTROLLER_EPOCH],
    ControllerRemoved: lambda draft, record: [paths.CONTROLLER],
    BrokerRegistration: _broker,
    BrokerAdmitted: _broker,
    ReplicasLost: _broker,
    FolderMarks: lambda draft, record: (),  # They have no place in the tree.
    TopicCreated: _topic_created,
    TopicRemoved: _topic_removed,
    TopicDeletionPending: lambda draft, record: [paths.deletion_path(record.name)],
    PartitionChange: _partition,
    IsrChange: _partition,
    PartitionReassignment: _partition_reassignment,
    PartitionAdditionPending: _addition_pending,
    PartitionsAdded: _partitions_added,
    PartitionRemovalPending: lambda draft, record: _removals(
        draft, record.topic, record.first_partition
    ),
    PartitionsRemoved: _partitions_removed,
    ConfigSet: lambda draft, record: [config_path(record.entity_type, record.entity_name)],
    AclAdded: _acl,
    AclRemoved: _acl,
    FeatureLevel: lambda draft, record: [feature_path(record.name)],
    ProducerIdBlock: lambda draft, record: [paths.PRODUCER_IDS],
    QuorumVoterSet: _voter_set,
    ClientQuotaSet: _quota,
    IpQuotaSet: lambda draft, record: [f"/quotas/ips/{quoted(record.ip)}"],
    ScramCredentialSet: _scram,
    ScramDecoyKeySet: lambda draft, record: (),  # It has no place in the tree.
    ScramCredentialRemoved: _scram,
    ChangeNote: lambda draft, record: (),  # It only accompanies other records.
    DelegationTokenSet: _token,
    DelegationTokenRemoved: _token,
    PipelineSet: lambda draft, record: [paths.pipeline_path(record.name)],
    PipelineRemoved: lambda draft, record: [paths.pipeline_path(record.name)],
}
