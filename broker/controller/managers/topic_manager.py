"""Decides which topics are created and deleted (C4, C5)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.topic_names import checked_name, folded_name, may_collide
from quorate.broker.config.topic_keys import TOPIC_SPEC
from quorate.broker.controller.managers.decisions import (
    MAX_OPERATIONS_BYTES,
    ControllerTenure,
    ItemDecision,
)
from quorate.broker.controller.managers.placement import (
    NewIds,
    NewReplicas,
    PlacementStart,
    ReplicaLimit,
    first_leadership,
    place,
)
from quorate.common.configuration import ConfigError
from quorate.common.types import BrokerId, TopicId
from quorate.metadata_log.codec import encoded_bytes
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Topic
from quorate.metadata_log.records import (
    ConfigSet,
    NewPartition,
    Operation,
    TopicCreated,
    TopicDeletionPending,
    TopicRemoved,
)
from quorate_proto.v1 import admin_pb2, errors_pb2

DEFAULT: Final = -1
"""The number of partitions or replicas in a request that means the cluster's default."""

PARTITIONS_MAX: Final = 175_000
"""The most partitions of a topic. More would not fit into the one record that creates it."""


Charge = Callable[[int], None]
"""Charges partitions to be created, added or deleted to the client's quota. It may raise
KafkaError."""


def charge_nothing(_partitions: int) -> None:
    """Charge nothing, because requests that are only validated are not charged (Q6)."""


class TopicDefaults(NamedTuple):
    """The values that a request gets where it has none."""

    num_partitions: int
    replication_factor: int


TopicDecision: TypeAlias = ItemDecision[admin_pb2.TopicResult]


class TopicRef(NamedTuple):
    """A topic of a request, by name or by id."""

    name: str = ""
    topic_id: TopicId = TopicId(b"")


def create_topics(
    image: Image,
    topics: Sequence[admin_pb2.NewTopic],
    *,
    tenure: ControllerTenure,
    defaults: Callable[[], TopicDefaults],
    draw: Callable[[], NewIds],
    repeated: frozenset[str] = frozenset(),
    charge: Charge = charge_nothing,
    limit: ReplicaLimit | None = None,
) -> list[TopicDecision]:
    """Decide for each topic, in order. A refused topic never stops the others.

    ``repeated`` are the names that the whole request, of which ``topics`` may be a part, contains
    twice. ``charge`` is called with the number of partitions of each topic, and may refuse it (Q1).
    ``limit`` is the limit on what a broker may hold, if there is one.
    """
    room = (limit or ReplicaLimit()).begin(image)
    taken: dict[str, str] = {}
    if any(may_collide(topic.name) for topic in topics):
        taken = {folded_name(name): name for name in image.topics if may_collide(name)}
    decisions = []
    for topic in topics:
        try:
            if topic.name in repeated:
                raise KafkaError(
                    errors_pb2.INVALID_REQUEST,
                    f"topic {topic.name!r} is named more than once in one request",
                )
            checked_name(topic.name)
            _check_free(image, taken, topic.name)
            decision = _create(image, topic, tenure, defaults, draw(), room)
            charge(decision.result.num_partitions)
        except KafkaError as error:
            decision = _refused(error, topic.name)
        else:
            taken[folded_name(topic.name)] = topic.name
        decisions.append(decision)
    return decisions


def repeated_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that a request contains more than once. They are refused."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def _check_free(image: Image, taken: dict[str, str], name: str) -> None:
    if name in image.topics:
        pending = " and is being deleted" if name in image.deletions else ""
        raise KafkaError(errors_pb2.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists{pending}")
    other = taken.get(folded_name(name))
    if other is not None:
        raise KafkaError(
            errors_pb2.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with {other!r}: '.' and '_' are the same in metric names",
        )


def _create(
    image: Image,
    topic: admin_pb2.NewTopic,
    tenure: ControllerTenure,
    defaults: Callable[[], TopicDefaults],
    ids: NewIds,
    room: NewReplicas,
) -> TopicDecision:
    if topic.configs:
        _check_configs(topic)
    if topic.assignments:
        replicas = _assigned_by_hand(image, topic)
    else:
        replicas = _assigned(image, topic, defaults, ids.placement)
    room.add(topic.name, replicas)
    live = frozenset(image.brokers)
    operation = _creation(
        tenure, topic, ids.topic_id, tuple(first_leadership(one, live) for one in replicas)
    )
    return ItemDecision(
        admin_pb2.TopicResult(
            name=topic.name,
            topic_id=ids.topic_id,
            num_partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=topic.configs,
        ),
        operation,
    )


def _check_configs(topic: admin_pb2.NewTopic) -> None:
    try:
        TOPIC_SPEC.parse(topic.configs)
    except ConfigError as error:
        raise KafkaError(errors_pb2.INVALID_CONFIG, f"topic {topic.name!r}: {error}") from error


def _creation(
    tenure: ControllerTenure,
    topic: admin_pb2.NewTopic,
    topic_id: TopicId,
    partitions: tuple[NewPartition, ...],
) -> Operation:
    created = TopicCreated(
        name=topic.name,
        topic_id=topic_id,
        partitions=partitions,
        controller_id=tenure.controller_id,
        controller_epoch=tenure.controller_epoch,
    )
    configs = (
        ConfigSet(entity_type="topic", entity_name=topic.name, key=key, value=value)
        for key, value in sorted(topic.configs.items())
    )
    operation = tenure.operation(created, *configs)
    if encoded_bytes(operation) > MAX_OPERATIONS_BYTES:
        raise _too_many_partitions(topic.name, len(partitions))
    return operation


def _assigned(
    image: Image,
    topic: admin_pb2.NewTopic,
    defaults: Callable[[], TopicDefaults],
    start: PlacementStart,
) -> tuple[tuple[BrokerId, ...], ...]:
    partitions, replication_factor = topic.num_partitions, topic.replication_factor
    if partitions == DEFAULT:
        partitions = defaults().num_partitions
    if replication_factor == DEFAULT:
        replication_factor = defaults().replication_factor
    if partitions < 1:
        raise KafkaError(
            errors_pb2.INVALID_PARTITIONS,
            f"topic {topic.name!r}: number of partitions {partitions} must be at least 1",
        )
    if partitions > PARTITIONS_MAX:
        raise _too_many_partitions(topic.name, partitions)
    if replication_factor < 1:
        raise KafkaError(
            errors_pb2.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name!r}: replication factor {replication_factor} must be at least 1",
        )
    racks = {broker_id: broker.registration.rack for broker_id, broker in image.brokers.items()}
    if replication_factor > len(racks):
        raise KafkaError(
            errors_pb2.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name!r}: replication factor {replication_factor} is larger than the "
            f"number of live brokers {len(racks)}",
        )
    return place(racks, partitions, replication_factor, start)


def _too_many_partitions(name: str, partitions: int) -> KafkaError:
    return KafkaError(
        errors_pb2.INVALID_PARTITIONS,
        f"topic {name!r}: {partitions} partitions do not fit into one topic: create fewer",
    )


def _assigned_by_hand(image: Image, topic: admin_pb2.NewTopic) -> tuple[tuple[BrokerId, ...], ...]:
    """Return the replicas of each partition from the request. Refuse all if one is wrong."""
    by_number = {one.partition: tuple(map(BrokerId, one.broker_ids)) for one in topic.assignments}
    numbers = sorted(one.partition for one in topic.assignments)
    if numbers != list(range(len(numbers))):
        raise _bad_assignment(topic.name, f"partitions {numbers} are not 0 to {len(numbers) - 1}")
    replicas = tuple(by_number[number] for number in numbers)
    for number, assigned in enumerate(replicas):
        if not assigned or len(set(assigned)) != len(assigned):
            raise _bad_assignment(
                topic.name, f"replicas {list(assigned)} of partition {number} are not distinct"
            )
        if len(assigned) != len(replicas[0]):
            raise _bad_assignment(
                topic.name,
                f"partition {number} has {len(assigned)} replicas, "
                f"partition 0 has {len(replicas[0])}",
            )
        for broker_id in assigned:
            if broker_id not in image.brokers:
                raise _bad_assignment(
                    topic.name,
                    f"broker {broker_id} of partition {number} is not live: "
                    f"{sorted(image.brokers)} are",
                )
    return replicas


def _bad_assignment(name: str, why: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REPLICA_ASSIGNMENT, f"topic {name!r}: {why}")


# --- deletion -----------------------------------------------------------------------------------


def delete_topics(
    image: Image,
    names: Sequence[str],
    topic_ids: Sequence[bytes],
    *,
    tenure: ControllerTenure,
    deletion_enabled: bool,
    charge: Charge = charge_nothing,
) -> list[TopicDecision]:
    """Decide for each name, then for each id. Accepted deletions become pending.

    ``charge`` is called with the number of partitions of each topic, and may refuse it (Q1).
    """
    named = [TopicRef(name=name) for name in names]
    named += [TopicRef(topic_id=TopicId(topic_id)) for topic_id in topic_ids]
    decisions = []
    for ref in named:
        try:
            decisions.append(_delete(image, ref, tenure, deletion_enabled, charge))
        except KafkaError as error:
            decisions.append(_refused(error, ref.name, ref.topic_id))
    return decisions


def _delete(
    image: Image, ref: TopicRef, tenure: ControllerTenure, deletion_enabled: bool, charge: Charge
) -> TopicDecision:
    if not deletion_enabled:
        raise KafkaError(
            errors_pb2.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this cluster"
        )
    topic = _referred_to(image, ref)
    result = admin_pb2.TopicResult(name=topic.name, topic_id=topic.topic_id)
    if topic.name in image.deletions:
        return ItemDecision(result)
    charge(len(topic.partitions))
    pending = TopicDeletionPending(name=topic.name, topic_id=topic.topic_id)
    return ItemDecision(result, tenure.operation(pending))


def _referred_to(image: Image, ref: TopicRef) -> Topic:
    by_id = bool(ref.topic_id)
    topic = image.topic_by_id(ref.topic_id) if by_id else image.topics.get(ref.name)
    if topic is None and by_id:
        raise KafkaError(errors_pb2.UNKNOWN_TOPIC_ID, f"no topic has the id {ref.topic_id.hex()}")
    if topic is None:
        raise KafkaError(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {ref.name!r}")
    return topic


def removals(image: Image, tenure: ControllerTenure, names: Iterable[str]) -> list[Operation]:
    """Return operations that end pending deletions whose replicas are stopped. The topics are
    deleted with this."""
    return [
        tenure.operation(TopicRemoved(name=name, topic_id=image.deletions[name].topic_id))
        for name in names
        if name in image.deletions
    ]


def _refused(error: KafkaError, name: str, topic_id: bytes = b"") -> TopicDecision:
    return ItemDecision(
        admin_pb2.TopicResult(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
        )
    )
