"""The answers of test brokers to LeaderAndIsr requests."""

from collections.abc import Container

from quorate_proto.v1 import control_pb2, errors_pb2


def leadership_outcomes(
    request: control_pb2.LeaderAndIsrRequest, broken: Container[str]
) -> list[control_pb2.PartitionOutcome]:
    """Return one outcome for each partition: a storage error for the topics in ``broken``."""
    return [
        control_pb2.PartitionOutcome(
            topic=topic.topic,
            partition=one.partition,
            error_code=errors_pb2.KAFKA_STORAGE_ERROR if topic.topic in broken else 0,
        )
        for topic in request.topics
        for one in topic.partitions
    ]
