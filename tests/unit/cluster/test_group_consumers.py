"""Consumers of tests: where they begin, so that they wait for no timer of librdkafka."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, TopicPartition

from quorate.testing.group_consumers import _BeginningAssignment


class FakeConsumer:
    """Has committed offset 7 of partition 1 alone; what it is assigned is kept."""

    def __init__(self) -> None:
        self.assigned: list[tuple[str, list[tuple[int, int]]]] = []

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        known = {1: 7}
        return [
            TopicPartition(one.topic, one.partition, known.get(one.partition, OFFSET_INVALID))
            for one in partitions
        ]

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._note("all", partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._note("more", partitions)

    def _note(self, how: str, partitions: list[TopicPartition]) -> None:
        self.assigned.append((how, [(one.partition, one.offset) for one in partitions]))


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({}, "all"),
        ({"group.protocol": "classic"}, "all"),
        ({"partition.assignment.strategy": "cooperative-sticky"}, "more"),
        ({"group.protocol": "consumer"}, "more"),
    ],
)
def test_what_has_no_committed_offset_begins_at_the_beginning_at_once(
    settings: dict[str, Any], how: str
) -> None:
    consumer = FakeConsumer()
    partitions = [TopicPartition("orders", number) for number in (0, 1)]
    _BeginningAssignment(settings)(consumer, partitions)  # type: ignore[arg-type]
    assert consumer.assigned == [(how, [(0, OFFSET_BEGINNING), (1, 7)])]
