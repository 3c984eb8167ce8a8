"""The health of the cluster according to an image: its brokers, and the partitions in trouble."""

from collections.abc import Callable, Sequence
from typing import Final

from quorate.broker.controller.managers.feature_manager import statuses
from quorate.common.types import TopicPartition
from quorate.metadata_log.codec import encode_endpoint
from quorate.metadata_log.image import Image
from quorate.metadata_log.partitions import Partition
from quorate_proto.v1 import admin_pb2, replication_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse

_NAMED_MAX: Final = 5


def cluster_status(
    image: Image, min_insync_replicas: Callable[[str], int]
) -> admin_pb2.ClusterStatusResponse:
    """Return the status; ``min_insync_replicas`` gives the setting of a topic."""
    status = admin_pb2.ClusterStatusResponse(
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
        metadata_offset=image.offset,
        brokers=broker_endpoints(image),
        topics=len(image.topics),
        partitions=sum(len(topic.partitions) for topic in image.topics.values()),
        features=statuses(image),
    )
    for name, topic in sorted(image.topics.items()):
        for number, partition in enumerate(topic.partitions):
            if partition.offline or partition.under_replicated:
                tp = TopicPartition(name, number)
                pending = image.reassignment(tp)
                wanted = len(partition.replicas) - len(pending.adding if pending else ())
                _note_trouble(status, tp, partition, wanted, min_insync_replicas)
    return status


def offline_alert(offline: Sequence[admin_pb2.PartitionRef]) -> str:
    """Return what an operator is told of partitions that nobody leads (C22)."""
    named = ", ".join(f"{one.topic}-{one.partition}" for one in offline[:_NAMED_MAX])
    more = f" and {len(offline) - _NAMED_MAX} more" if len(offline) > _NAMED_MAX else ""
    return (
        f"{len(offline)} partitions are offline: {named}{more}: start a broker of their ISR, "
        "restart it with a log directory that had failed, or accept a loss with `quorate "
        "elect-leaders --election-type unclean`"
    )


def voter_alerts(quorum: QuorumStatusResponse) -> list[str]:
    """Return what an operator is told of voters that do not take part. Only the leader knows."""
    if quorum.voter_id != quorum.leader_id:
        return []
    voters = [voter for voter in quorum.voters if not voter.observer]
    away = [voter for voter in voters if not voter.connected or voter.stale]
    spare = len(voters) - len(away) - len(voters) // 2 - 1
    return [
        f"voter {voter.voter_id} at {voter.raft_address} "
        + ("has an old copy of its data folder" if voter.stale else "is not connected")
        + f": the quorum survives the loss of {spare} more"
        for voter in away
    ]


def broker_endpoints(image: Image) -> list[replication_pb2.BrokerEndpoint]:
    """Return the addresses of the live brokers.

    Every caller gets them, to be able to query the other brokers.
    """
    return [
        replication_pb2.BrokerEndpoint(
            broker_id=broker_id,
            grpc=encode_endpoint(broker.grpc),
            kafka=encode_endpoint(broker.kafka),
            broker_epoch=broker.epoch,
            rack=broker.registration.rack,
        )
        for broker_id, broker in sorted(image.brokers.items())
    ]


def _note_trouble(
    status: admin_pb2.ClusterStatusResponse,
    tp: TopicPartition,
    partition: Partition,
    wanted: int,
    min_insync_replicas: Callable[[str], int],
) -> None:
    """Add a partition to the lists of partitions in trouble.

    A partition counts as at its minimum only if it could have more replicas in sync. ``wanted`` is
    the number of replicas that should be in sync. Replicas that a reassignment is adding are still
    catching up, and no trouble (C11).
    """
    reference = admin_pb2.PartitionRef(topic=tp.topic, partition=tp.partition)
    if partition.offline:
        status.offline_partitions.append(reference)
    if len(partition.isr) >= wanted:
        return
    status.under_replicated_partitions.append(reference)
    needed = min(min_insync_replicas(tp.topic), wanted)
    if len(partition.isr) < needed:
        status.under_min_isr_partitions.append(reference)
    elif len(partition.isr) == needed:
        status.at_min_isr_partitions.append(reference)
