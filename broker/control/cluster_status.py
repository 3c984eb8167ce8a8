"""What an image says of the cluster's health: who is there, and which partitions are in trouble."""

from collections.abc import Callable

from broker.controller.managers.feature_levels import statuses
from metadata_log.image import Image, Partition
from metadata_log.record_codec import encode_endpoint
from metadata_log.types import TopicPartition
from quorate_proto.v1 import admin_pb2, replication_pb2


def cluster_status(
    image: Image, min_insync_replicas: Callable[[str], int]
) -> admin_pb2.ClusterStatusResponse:
    """``min_insync_replicas``: of a topic."""
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


def broker_endpoints(image: Image) -> list[replication_pb2.BrokerEndpoint]:
    """Where the live brokers are: what anybody is told, who could not ask further without it."""
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
    """At the minimum is only who could have more: a whole ISR is as good as it gets.

    ``wanted``: how many replicas there are to be in sync. Those that a reassignment is adding are
    on their way, and no trouble (C11).
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
