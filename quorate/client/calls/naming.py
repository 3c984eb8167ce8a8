"""Converts partition names into the form that requests use."""

from collections.abc import Iterable

from quorate.client.results import PartitionName
from quorate_proto.v1 import admin_pb2


def by_topic(partitions: Iterable[PartitionName]) -> list[admin_pb2.TopicPartitions]:
    """Group partitions by topic, in the order of first mention."""
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    return [
        admin_pb2.TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in topics.items()
    ]
