"""Decides elections that an operator or the leader balancer requests: preferred and unclean ones
(C2).

The result of a partition that needs no election, or cannot have one, never stops the others.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from quorate.broker.controller.managers import partition_change
from quorate.broker.controller.managers.broker_manager import liveness
from quorate.broker.controller.managers.decisions import ControllerTenure, ItemDecision
from quorate.broker.controller.managers.partition_change import (
    NOBODY,
    NONE_OFFLINE,
    Brokers,
    ElectionRefused,
    LeadershipChange,
    OfflineReplicas,
)
from quorate.common.types import BrokerId, TopicIdPartition, TopicPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition
from quorate_proto.v1 import admin_pb2, errors_pb2

ElectionType: TypeAlias = "admin_pb2.ElectionType.ValueType"

Choose = Callable[[Partition, Brokers], LeadershipChange | ElectionRefused]
"""Chooses the new leader of a partition, for one type of election. It is also given the brokers
whose replica of that partition is offline, which it never chooses."""


ElectionDecision: TypeAlias = ItemDecision[admin_pb2.PartitionResult]


def elect(
    image: Image,
    wanted: Sequence[TopicPartition],
    election_type: ElectionType,
    *,
    tenure: ControllerTenure,
    candidates: Brokers,
    offline: OfflineReplicas = NONE_OFFLINE,
) -> list[ElectionDecision]:
    """Decide for each partition, in order.

    ``candidates`` are the brokers that preferred leadership may move to. A broker that wants to
    stop is not one of them.
    """
    choose = _chooser(image, election_type, candidates)
    return [_decide(image, tp, choose, tenure, offline) for tp in wanted]


def electable(
    image: Image,
    election_type: ElectionType,
    *,
    candidates: Brokers,
    offline: OfflineReplicas = NONE_OFFLINE,
) -> list[TopicPartition]:
    """Return every partition for which an election of this type is needed."""
    choose = _chooser(image, election_type, candidates)
    return [
        tp
        for tp, partition in _kept(image)
        if _is_needed(choose(partition, _offline_of(image, tp, offline)))
    ]


def imbalanced(
    image: Image,
    *,
    candidates: Brokers,
    per_broker_percentage: int,
    offline: OfflineReplicas = NONE_OFFLINE,
) -> list[TopicPartition]:
    """Return the partitions that should return to their preferred replica, on brokers that lead too
    few.

    A broker leads too few once others lead more than ``per_broker_percentage`` of the partitions
    that prefer it. Partitions whose preferred replica cannot lead now are left out.
    """
    preferring: dict[BrokerId, int] = {}
    elsewhere: dict[BrokerId, list[TopicPartition]] = {}
    for tp, partition in _kept(image):
        broker_id = partition.preferred_leader
        preferring[broker_id] = preferring.get(broker_id, 0) + 1
        if partition.leader != broker_id:
            elsewhere.setdefault(broker_id, []).append(tp)
    return [
        tp
        for broker_id, found in elsewhere.items()
        if 100 * len(found) > per_broker_percentage * preferring[broker_id]
        for tp in found
        if _can_be_preferred(image, tp, candidates - _offline_of(image, tp, offline))
    ]


def is_whole(image: Image) -> bool:
    """Return whether every replica of every partition is in sync, so that no broker is awaited."""
    return all(not partition.under_replicated for _, partition in _kept(image))


def _can_be_preferred(image: Image, tp: TopicPartition, candidates: Brokers) -> bool:
    partition = image.topics[tp.topic].partitions[tp.partition]
    return isinstance(partition_change.preferred(partition, candidates), LeadershipChange)


def _chooser(image: Image, election_type: ElectionType, candidates: Brokers) -> Choose:
    if election_type == admin_pb2.ELECTION_UNCLEAN:
        brokers = liveness(image)
        return lambda partition, offline: partition_change.unclean(
            partition, brokers.with_offline(offline)
        )
    return lambda partition, offline: partition_change.preferred(partition, candidates - offline)


def _offline_of(image: Image, tp: TopicPartition, offline: OfflineReplicas) -> Brokers:
    if not offline:
        return NOBODY
    return offline.get(TopicIdPartition(image.topics[tp.topic].topic_id, tp.partition), NOBODY)


def _decide(
    image: Image,
    tp: TopicPartition,
    choose: Choose,
    tenure: ControllerTenure,
    offline: OfflineReplicas,
) -> ElectionDecision:
    result = admin_pb2.PartitionResult(topic=tp.topic, partition=tp.partition)
    partition = image.partition(tp)
    if partition is None or tp.partition >= image.kept(image.topics[tp.topic]):
        result.error_code = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = f"there is no partition {tp}, or it is being deleted"
        return ItemDecision(result)
    chosen = choose(partition, _offline_of(image, tp, offline))
    if isinstance(chosen, ElectionRefused):
        result.error_code = chosen.error_code
        result.error_message = f"{tp}: {chosen.message}"
        return ItemDecision(result)
    topic_id = image.topics[tp.topic].topic_id
    operation = partition_change.operation(
        tenure, tp.topic, topic_id, tp.partition, partition, chosen
    )
    return ItemDecision(result, operation)


def _is_needed(chosen: LeadershipChange | ElectionRefused) -> bool:
    if isinstance(chosen, ElectionRefused):
        return chosen.error_code != errors_pb2.ELECTION_NOT_NEEDED
    return True


def _kept(image: Image) -> Iterator[tuple[TopicPartition, Partition]]:
    for name, topic in image.topics.items():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            yield TopicPartition(name, number), partition
