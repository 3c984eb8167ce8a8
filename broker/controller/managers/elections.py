"""Elections that an operator or the balancer asks for: preferred leaders and unclean ones (C2).

A partition that needs no election, or cannot have one, is an answer of its own and stops no other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from broker.controller.managers import partition_change
from broker.controller.managers.brokers import liveness
from broker.controller.managers.office import Office
from broker.controller.managers.partition_change import Brokers, ElectionRefused, Leadership
from metadata_log.image import Image, Partition
from metadata_log.records import Operation
from metadata_log.types import BrokerId, TopicPartition
from quorate_proto.v1 import admin_pb2, errors_pb2

ElectionType: TypeAlias = "admin_pb2.ElectionType.ValueType"

Choose = Callable[[Partition], Leadership | ElectionRefused]
"""Picks the leader that an election of one kind gives a partition."""


class ElectionDecision(NamedTuple):
    """Outcome for one partition; ``operation`` None: there is no election."""

    result: admin_pb2.PartitionResult
    operation: Operation | None = None


def elect(
    image: Image,
    wanted: Sequence[TopicPartition],
    election_type: ElectionType,
    *,
    office: Office,
    candidates: Brokers,
) -> list[ElectionDecision]:
    """One decision per partition, in order.

    ``candidates``: brokers that preferred leadership may move to; one that wants to stop is none.
    """
    choose = _chooser(image, election_type, candidates)
    return [_decide(image, tp, choose, office) for tp in wanted]


def electable(
    image: Image, election_type: ElectionType, *, candidates: Brokers
) -> list[TopicPartition]:
    """Every partition that an election of this kind would not refuse as needless."""
    choose = _chooser(image, election_type, candidates)
    return [tp for tp, partition in _kept(image) if _is_needed(choose(partition))]


def imbalanced(
    image: Image, *, candidates: Brokers, per_broker_percentage: int
) -> list[TopicPartition]:
    """Partitions to be led by their preferred replica again, of brokers that lead too few.

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
        if _can_be_preferred(image, tp, candidates)
    ]


def _can_be_preferred(image: Image, tp: TopicPartition, candidates: Brokers) -> bool:
    partition = image.topics[tp.topic].partitions[tp.partition]
    return isinstance(partition_change.preferred(partition, candidates), Leadership)


def _chooser(image: Image, election_type: ElectionType, candidates: Brokers) -> Choose:
    if election_type == admin_pb2.ELECTION_UNCLEAN:
        brokers = liveness(image)
        return lambda partition: partition_change.unclean(partition, brokers)
    return lambda partition: partition_change.preferred(partition, candidates)


def _decide(image: Image, tp: TopicPartition, choose: Choose, office: Office) -> ElectionDecision:
    result = admin_pb2.PartitionResult(topic=tp.topic, partition=tp.partition)
    partition = image.partition(tp)
    if partition is None or tp.partition >= image.kept(image.topics[tp.topic]):
        result.error_code = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = f"there is no partition {tp}, or it is being deleted"
        return ElectionDecision(result)
    chosen = choose(partition)
    if isinstance(chosen, ElectionRefused):
        result.error_code = chosen.error_code
        result.error_message = f"{tp}: {chosen.message}"
        return ElectionDecision(result)
    topic_id = image.topics[tp.topic].topic_id
    operation = partition_change.operation(
        office, tp.topic, topic_id, tp.partition, partition, chosen
    )
    return ElectionDecision(result, operation)


def _is_needed(chosen: Leadership | ElectionRefused) -> bool:
    if isinstance(chosen, ElectionRefused):
        return chosen.error_code != errors_pb2.ELECTION_NOT_NEEDED
    return True


def _kept(image: Image) -> Iterator[tuple[TopicPartition, Partition]]:
    for name, topic in image.topics.items():
        for number, partition in enumerate(topic.partitions[: image.kept(topic)]):
            yield TopicPartition(name, number), partition
