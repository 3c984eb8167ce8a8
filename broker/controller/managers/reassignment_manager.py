"""Decides how replicas move: which reassignments begin, change, complete or are cancelled (C11).

A partition that moves has both its old and its target replicas, the old ones first: the preferred
leader stays until all is replicated, and an unclean election prefers the replicas that have been
there longer. Once every target replica is in sync the others are removed, in one step with a change
of leader if the leader is removed. A dead old replica delays nothing.

Each step is decided from one image and written by compare-and-set on leaderAndISR. A step that
loses is decided again.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.managers.decisions import ControllerTenure, ItemDecision
from quorate.broker.controller.managers.partition_change import (
    NONE_OFFLINE,
    Brokers,
    LiveBrokers,
    OfflineReplicas,
    without_offline,
)
from quorate.common.types import (
    NO_BROKER,
    BrokerId,
    LeaderEpoch,
    TopicIdPartition,
    TopicPartition,
)
from quorate.metadata_log.image import METADATA_VERSION, Image
from quorate.metadata_log.partitions import Partition, Reassignment, Topic
from quorate.metadata_log.records import Operation, PartitionReassignment
from quorate_proto.v1 import admin_pb2, errors_pb2

Replicas = tuple[BrokerId, ...]

METADATA_VERSION_WITH_REASSIGNMENTS: Final = 2


class WantedTarget(NamedTuple):
    """The requested target for one partition. A ``target`` of None cancels the pending
    reassignment."""

    tp: TopicPartition
    target: Replicas | None


class EligibleBrokers(NamedTuple):
    """The brokers that may hold and lead a partition."""

    brokers: LiveBrokers
    staying: Brokers
    """The steady brokers that do not want to stop. Leadership moves to these."""

    offline: OfflineReplicas = NONE_OFFLINE
    """The replicas in log directories that have failed. They are given no leadership."""


ReassignmentDecision: TypeAlias = ItemDecision[admin_pb2.PartitionResult]


class _Step(NamedTuple):
    """The replicas of a partition after one step; an empty ``target`` ends the reassignment."""

    replicas: Replicas
    target: Replicas = ()
    original: Replicas = ()


# --- what is asked for --------------------------------------------------------------------------


def alter(
    image: Image,
    wanted: Sequence[WantedTarget],
    *,
    tenure: ControllerTenure,
    candidates: EligibleBrokers,
    allow_replication_factor_change: bool = True,
) -> list[ReassignmentDecision]:
    """Decide for each partition, in order. A refused partition never stops the others."""
    decisions = []
    for one in wanted:
        result = admin_pb2.PartitionResult(topic=one.tp.topic, partition=one.tp.partition)
        try:
            topic, partition = _known(image, one.tp)
            pending = image.reassignment(one.tp)
            if one.target is None:
                step: _Step | None = _cancelled(one.tp, pending)
            else:
                if not allow_replication_factor_change:
                    _check_replication_factor(one.tp, partition, pending, one.target)
                step = _moved(one.tp, partition, pending, one.target, candidates.brokers)
            operation = None
            if step is not None:
                operation = _operation(tenure, topic, one.tp, partition, step, candidates)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            operation = None
        decisions.append(ItemDecision(result, operation))
    return decisions


def _known(image: Image, tp: TopicPartition) -> tuple[Topic, Partition]:
    if image.metadata_version < METADATA_VERSION_WITH_REASSIGNMENTS:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_VERSION,
            f"{METADATA_VERSION} is at level {image.metadata_version}, and replicas can be moved "
            f"from {METADATA_VERSION_WITH_REASSIGNMENTS} on: upgrade the feature first",
        )
    topic, partition = image.topics.get(tp.topic), image.partition(tp)
    if topic is None or partition is None:
        raise KafkaError(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {tp}")
    if tp.partition >= image.kept(topic):
        raise KafkaError(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} is being deleted")
    return topic, partition


def _cancelled(tp: TopicPartition, pending: Reassignment | None) -> _Step:
    if pending is None:
        raise KafkaError(
            errors_pb2.NO_REASSIGNMENT_IN_PROGRESS, f"no reassignment of {tp} is in progress"
        )
    return _Step(pending.original)


def _moved(
    tp: TopicPartition,
    partition: Partition,
    pending: Reassignment | None,
    target: Replicas,
    brokers: LiveBrokers,
) -> _Step | None:
    """Return the step towards ``target``, or None if it is pending already or reached."""
    _check_target(tp, partition, target, brokers)
    if target == (partition.replicas if pending is None else pending.target):
        return None
    original = partition.replicas if pending is None else pending.original
    if set(target) == set(original) or _is_in_sync(partition, target, brokers):
        return _Step(target)
    added = tuple(one for one in target if one not in original)
    return _Step(original + added, target, original)


def _check_target(
    tp: TopicPartition, partition: Partition, target: Replicas, brokers: LiveBrokers
) -> None:
    if not target:
        raise _invalid(tp, "the list of replicas is empty")
    if len(set(target)) != len(target):
        raise _invalid(tp, f"replicas {list(target)} are not distinct")
    away = [one for one in target if one not in partition.replicas and one not in brokers.live]
    if away:
        raise _invalid(
            tp,
            f"brokers {away} of replicas {list(target)} are not live: {sorted(brokers.live)} are",
        )


def _check_replication_factor(
    tp: TopicPartition, partition: Partition, pending: Reassignment | None, target: Replicas
) -> None:
    """Refuse a plan that would change the replication factor by accident (KIP-860)."""
    original = partition.replicas if pending is None else pending.original
    if len(target) != len(original):
        raise KafkaError(
            errors_pb2.INVALID_REPLICATION_FACTOR,
            f"{tp} has {len(original)} replicas, and {len(target)} are asked for while a change of "
            "the replication factor is not allowed",
        )


def _invalid(tp: TopicPartition, why: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REPLICA_ASSIGNMENT, f"{tp}: {why}")


# --- what completes by itself -------------------------------------------------------------------


def completions(
    image: Image, topics: Iterable[str], *, tenure: ControllerTenure, candidates: EligibleBrokers
) -> list[Operation]:
    """Return operations that end the reassignments of ``topics`` whose target is in sync."""
    operations = []
    for topic, number, pending in _pending_in(image, topics):
        partition = topic.partitions[number]
        if not _is_in_sync(partition, pending.target, candidates.brokers):
            continue
        tp = TopicPartition(topic.name, number)
        step = _Step(pending.target)
        operations.append(_operation(tenure, topic, tp, partition, step, candidates))
    return operations


def _is_in_sync(partition: Partition, target: Replicas, brokers: LiveBrokers) -> bool:
    """Return whether every broker of ``target`` has the committed records and can continue."""
    return set(partition.isr).issuperset(target) and brokers.steady.issuperset(target)


def _pending_in(image: Image, topics: Iterable[str]) -> Iterator[tuple[Topic, int, Reassignment]]:
    for name in topics:
        pending = image.reassignments.get(name)
        if pending is not None and name not in image.deletions:
            for number, reassignment in sorted(pending.items()):
                yield image.topics[name], number, reassignment


# --- the step -----------------------------------------------------------------------------------


def _operation(
    tenure: ControllerTenure,
    topic: Topic,
    tp: TopicPartition,
    before: Partition,
    step: _Step,
    candidates: EligibleBrokers,
) -> Operation:
    isr = tuple(one for one in step.replicas if one in before.isr)
    return tenure.operation(
        PartitionReassignment(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=tp.partition,
            expected_version=before.version,
            replicas=step.replicas,
            leader=_leader(topic, tp, before, isr, candidates),
            leader_epoch=LeaderEpoch(before.leader_epoch + 1),
            isr=isr,
            target=step.target,
            original=step.original,
            controller_id=tenure.controller_id,
            controller_epoch=tenure.controller_epoch,
        )
    )


def _leader(
    topic: Topic,
    tp: TopicPartition,
    before: Partition,
    isr: Replicas,
    candidates: EligibleBrokers,
) -> BrokerId:
    """Choose a leader. A leader that can stay, stays; otherwise the first one that will itself
    stay."""
    if before.isr and not isr:
        raise _invalid(tp, f"none of its replicas would be in the ISR {list(before.isr)}")
    if before.leader in isr:
        return before.leader
    tip = TopicIdPartition(topic.topic_id, tp.partition)
    for brokers in (candidates.staying, candidates.brokers.steady):
        able = without_offline(brokers, candidates.offline, tip)
        for one in isr:
            if one in able:
                return one
    if before.offline:
        return NO_BROKER
    raise _invalid(tp, f"no live broker could lead it with an ISR of {list(isr)}")


# --- what is pending ----------------------------------------------------------------------------


def listed(
    image: Image, wanted: Sequence[TopicPartition] | None
) -> list[admin_pb2.OngoingReassignment]:
    """Return the pending reassignments of the partitions ``wanted``, or all pending ones."""
    chosen = None if wanted is None else set(wanted)
    return [
        admin_pb2.OngoingReassignment(
            topic=topic.name,
            partition=number,
            replicas=topic.partitions[number].replicas,
            adding_replicas=pending.adding,
            removing_replicas=pending.removing,
        )
        for topic, number, pending in _pending_in(image, sorted(image.reassignments))
        if chosen is None or TopicPartition(topic.name, number) in chosen
    ]
