"""Decides additions of partitions to topics, and removals of the highest ones (C14).

Both are accepted as a pending record. They end with one record that changes the topic and removes
the pending one, so a crash leaves the work either pending or done.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.controller.managers.decisions import (
    MAX_OPERATIONS_BYTES,
    ControllerTenure,
    ItemDecision,
)
from quorate.broker.controller.managers.placement import (
    NewReplicas,
    PlacementStart,
    ReplicaLimit,
    first_leadership,
    place,
    start_of,
)
from quorate.broker.controller.managers.topic_manager import (
    PARTITIONS_MAX,
    Charge,
    TopicDecision,
    charge_nothing,
    repeated_names,
)
from quorate.common.types import BrokerId
from quorate.metadata_log.codec import encoded_bytes
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import PartitionAddition, Topic
from quorate.metadata_log.records import (
    Operation,
    PartitionAdditionPending,
    PartitionRemovalPending,
    PartitionsAdded,
    PartitionsRemoved,
)
from quorate_proto.v1 import admin_pb2, errors_pb2

Replicas = tuple[BrokerId, ...]

SINCE_METADATA_VERSION: Final = 2


# --- adding -------------------------------------------------------------------------------------


def add_partitions(
    image: Image,
    wanted: Sequence[admin_pb2.NewPartitions],
    *,
    tenure: ControllerTenure,
    draw: Callable[[], PlacementStart],
    repeated: frozenset[str] = frozenset(),
    charge: Charge = charge_nothing,
    limit: ReplicaLimit | None = None,
) -> list[TopicDecision]:
    """Decide for each topic, in order. A refused topic never stops the others.

    ``draw`` returns the start of the placement for a topic whose own stripes cannot be continued.
    ``repeated`` are the names that the whole request, of which ``wanted`` may be a part, contains
    twice. ``charge`` is called with the number of partitions that each topic gets, and may refuse
    it (Q1). ``limit`` is the limit on what a broker may hold, if there is one.
    """
    room = (limit or ReplicaLimit()).begin(image)
    decisions = []
    for one in wanted:
        try:
            topic = _changeable(image, one.name, repeated)
            decisions.append(_add(image, topic, one, tenure, draw, charge, room))
        except KafkaError as error:
            decisions.append(_refused(error, one.name))
    return decisions


def _add(
    image: Image,
    topic: Topic,
    wanted: admin_pb2.NewPartitions,
    tenure: ControllerTenure,
    draw: Callable[[], PlacementStart],
    charge: Charge,
    room: NewReplicas,
) -> TopicDecision:
    known = len(topic.partitions)
    if wanted.count <= known:
        raise KafkaError(
            errors_pb2.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {known} partitions: {wanted.count} would not be more",
        )
    if wanted.count > PARTITIONS_MAX:
        raise KafkaError(
            errors_pb2.INVALID_PARTITIONS,
            f"topic {topic.name!r}: {wanted.count} partitions: {PARTITIONS_MAX} are the most",
        )
    by_hand = tuple(tuple(map(BrokerId, one.broker_ids)) for one in wanted.assignments)
    result = admin_pb2.TopicResult(
        name=topic.name, topic_id=topic.topic_id, num_partitions=wanted.count
    )
    if _is_asked_again(image.additions.get(topic.name), wanted.count, by_hand):
        return ItemDecision(result)
    _require_nothing_pending(image, topic)
    if by_hand:
        replicas = _checked_assignments(image, topic, wanted.count, by_hand)
    else:
        replicas = _assigned(image, topic, wanted.count, draw)
    room.add(topic.name, replicas)
    result.replication_factor = len(replicas[0])
    accepted = PartitionAdditionPending(
        topic=topic.name, topic_id=topic.topic_id, first_partition=known, replicas=replicas
    )
    completion = _completion(
        image, tenure, topic.name, PartitionAddition(topic.topic_id, known, replicas, image.offset)
    )
    if encoded_bytes(completion) > MAX_OPERATIONS_BYTES:
        raise KafkaError(
            errors_pb2.INVALID_PARTITIONS,
            f"topic {topic.name!r}: {len(replicas)} partitions do not fit into one request: "
            "add fewer at a time",
        )
    charge(len(replicas))
    return ItemDecision(result, tenure.operation(accepted))


def _is_asked_again(
    pending: PartitionAddition | None, count: int, by_hand: tuple[Replicas, ...]
) -> bool:
    """Return whether the request asks for an addition that is already pending.

    A client whose answer was lost does that. It waits for the same work.
    """
    if pending is None or pending.first_partition + len(pending.replicas) != count:
        return False
    return by_hand in ((), pending.replicas)


def _assigned(
    image: Image, topic: Topic, count: int, draw: Callable[[], PlacementStart]
) -> tuple[Replicas, ...]:
    """Return the new replicas, continuing the topic's own stripes, with the same replication factor
    (KIP-36)."""
    racks = {broker_id: broker.registration.rack for broker_id, broker in image.brokers.items()}
    known = len(topic.partitions)
    first_replicas = topic.partitions[0].replicas
    if len(first_replicas) > len(racks):
        raise KafkaError(
            errors_pb2.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name!r}: replication factor {len(first_replicas)} is larger than the "
            f"number of live brokers {len(racks)}",
        )
    start = start_of(racks, first_replicas) or draw()
    return place(racks, count - known, len(first_replicas), start, first_partition=known)


def _checked_assignments(
    image: Image, topic: Topic, count: int, by_hand: tuple[Replicas, ...]
) -> tuple[Replicas, ...]:
    """Return the replicas of each new partition from the request. Refuse all if one is wrong."""
    known = len(topic.partitions)
    if len(by_hand) != count - known:
        raise _bad_assignment(
            topic, f"{len(by_hand)} assignments for {count - known} new partitions"
        )
    replication_factor = len(topic.partitions[0].replicas)
    for number, replicas in enumerate(by_hand, known):
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(
                topic, f"replicas {list(replicas)} of partition {number} are not distinct"
            )
        if len(replicas) != replication_factor:
            raise _bad_assignment(
                topic,
                f"partition {number} has {len(replicas)} replicas, the topic's others have "
                f"{replication_factor}",
            )
        for broker_id in replicas:
            if broker_id not in image.brokers:
                raise _bad_assignment(
                    topic,
                    f"broker {broker_id} of partition {number} is not live: "
                    f"{sorted(image.brokers)} are",
                )
    return by_hand


def additions(image: Image, tenure: ControllerTenure, names: Iterable[str]) -> list[Operation]:
    """Return operations that end pending additions: leaders are chosen among the live brokers, and
    the topics grow."""
    return [
        _completion(image, tenure, name, image.additions[name])
        for name in names
        if name in image.additions and name not in image.deletions
    ]


def _completion(
    image: Image, tenure: ControllerTenure, name: str, pending: PartitionAddition
) -> Operation:
    live = frozenset(image.brokers)
    return tenure.operation(
        PartitionsAdded(
            topic=name,
            topic_id=pending.topic_id,
            first_partition=pending.first_partition,
            partitions=tuple(first_leadership(one, live) for one in pending.replicas),
            controller_id=tenure.controller_id,
            controller_epoch=tenure.controller_epoch,
        )
    )


# --- removing -----------------------------------------------------------------------------------


def remove_partitions(
    image: Image,
    wanted: Sequence[admin_pb2.TopicPartitions],
    *,
    tenure: ControllerTenure,
    charge: Charge = charge_nothing,
) -> list[TopicDecision]:
    """Decide for each topic, in order. A refused topic never stops the others.

    ``charge`` is called with the number of partitions that each topic loses, and may refuse it
    (Q1).
    """
    repeated = repeated_names(one.topic for one in wanted)
    decisions = []
    for one in wanted:
        try:
            topic = _changeable(image, one.topic, repeated)
            decisions.append(_remove(image, topic, one.partitions, tenure, charge))
        except KafkaError as error:
            decisions.append(_refused(error, one.topic))
    return decisions


def _remove(
    image: Image, topic: Topic, partitions: Iterable[int], tenure: ControllerTenure, charge: Charge
) -> TopicDecision:
    first = _first_removed(topic, sorted(set(partitions)))
    result = admin_pb2.TopicResult(name=topic.name, topic_id=topic.topic_id, num_partitions=first)
    pending = image.removals.get(topic.name)
    if pending is not None and pending.first_partition == first:
        return ItemDecision(result)
    _require_nothing_pending(image, topic)
    charge(len(topic.partitions) - first)
    accepted = PartitionRemovalPending(
        topic=topic.name, topic_id=topic.topic_id, first_partition=first
    )
    return ItemDecision(result, tenure.operation(accepted))


def _first_removed(topic: Topic, numbers: Sequence[int]) -> int:
    """Return the first removed partition. Check that the highest partitions are removed and some
    stay, because clients need numbers without gaps."""
    known = len(topic.partitions)
    unknown = [number for number in numbers if not 0 <= number < known]
    if unknown:
        raise KafkaError(
            errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has partitions 0 to {known - 1}, not {unknown}",
        )
    if not numbers or numbers[0] == 0 or list(numbers) != list(range(numbers[0], known)):
        raise KafkaError(
            errors_pb2.INVALID_PARTITIONS,
            f"partitions {list(numbers)} of topic {topic.name!r} are not the highest of its "
            f"{known}: all above the first one removed must go with it, and partition 0 stays",
        )
    return numbers[0]


def removals(image: Image, tenure: ControllerTenure, names: Iterable[str]) -> list[Operation]:
    """Return operations that end pending removals whose replicas are stopped. The partitions are
    deleted with this."""
    return [
        tenure.operation(
            PartitionsRemoved(
                topic=name,
                topic_id=image.removals[name].topic_id,
                first_partition=image.removals[name].first_partition,
            )
        )
        for name in names
        if name in image.removals and name not in image.deletions
    ]


# --- both ---------------------------------------------------------------------------------------


def _changeable(image: Image, name: str, repeated: frozenset[str]) -> Topic:
    if name in repeated:
        raise KafkaError(
            errors_pb2.INVALID_REQUEST, f"topic {name!r} is named more than once in one request"
        )
    topic = image.topics.get(name)
    if topic is None or name in image.deletions:
        why = "there is no" if topic is None else "it is being deleted:"
        raise KafkaError(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"{why} topic {name!r}")
    if name in INTERNAL_TOPICS:
        # Kafka allows it, and its coordinators then disagree about the partition of a group.
        raise KafkaError(
            errors_pb2.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} keeps its {len(topic.partitions)} partitions: groups and "
            "transactional ids are found by that number, and what is known of them would not be "
            "found any more; it is configured before the topic is created",
        )
    if image.metadata_version < SINCE_METADATA_VERSION:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_VERSION,
            f"topic {name!r}: its number of partitions can change from metadata_version "
            f"{SINCE_METADATA_VERSION} on: raise it with `quorate features upgrade`",
        )
    return topic


def _require_nothing_pending(image: Image, topic: Topic) -> None:
    for what, pending in (
        ("a reassignment", image.reassignments),
        ("an addition of partitions", image.additions),
        ("a removal of partitions", image.removals),
    ):
        if topic.name in pending:
            raise KafkaError(
                errors_pb2.REASSIGNMENT_IN_PROGRESS,
                f"{what} of topic {topic.name!r} is in progress: try again when it is done",
            )


def _bad_assignment(topic: Topic, why: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REPLICA_ASSIGNMENT, f"topic {topic.name!r}: {why}")


def _refused(error: KafkaError, name: str) -> TopicDecision:
    return ItemDecision(
        admin_pb2.TopicResult(name=name, error_code=error.code, error_message=error.message)
    )
