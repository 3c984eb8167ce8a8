"""Spark's micro-batch loop, killed anywhere, over a log that grows: each offset once, from a model.

The model keeps what Spark keeps (an offset log written before a batch, a commit log after it) and
asks a stream reader what Spark asks, in the same order. Its sink is idempotent by batch id, as
Spark's file sink is.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from quorate.common.topic_partition import TopicPartition
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.offset_ranges import EARLIEST, LATEST, OffsetQuestion, OffsetRange
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.options.read_options import StreamOptions, parse_stream_options
from quorate.spark.schema import source_schema
from quorate.spark.streaming.stream_reader import QuorateStreamReader
from quorate_proto.v1.replication_pb2 import (
    DescribeTopicsResponse,
    OffsetAnswer,
    PartitionDescription,
    TopicDescription,
)

TOPIC = "orders"
Ranges = list[tuple[TopicPartition, int, int]]


@dataclass
class Logs:
    """A cluster as a planner sees it: how far each partition of the topic goes."""

    ends: list[int]

    def describe_topics(self, names: Sequence[str], *, every: bool) -> DescribeTopicsResponse:
        partitions = [PartitionDescription(partition=n) for n in range(len(self.ends))]
        topic = TopicDescription(topic=TOPIC, topic_id=b"1" * 16, partitions=partitions)
        return DescribeTopicsResponse(topics=[topic])

    def list_offsets(
        self, questions: Iterable[OffsetQuestion]
    ) -> dict[OffsetQuestion, OffsetAnswer]:
        answers = {}
        for question in questions:
            assert question.timestamp_ms in (EARLIEST, LATEST)
            at_end = question.timestamp_ms == LATEST
            offset = self.ends[question.topic_partition.partition] if at_end else 0
            answers[question] = OffsetAnswer(offset=offset)
        return answers

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class ToLogs(ConnectionOptions):
    logs: Logs = field(default_factory=lambda: Logs([]))

    def open(self) -> ClusterClient:
        return cast("ClusterClient", self.logs)


@dataclass
class Spark:
    """What outlives a driver: the two logs of the checkpoint, and the sink."""

    logs: Logs
    starting: str
    offset_log: dict[int, str] = field(default_factory=dict)
    commit_log: set[int] = field(default_factory=set)
    sink: dict[int, Ranges] = field(default_factory=dict)
    first_start: dict[str, int] | None = None
    """Where the first reader that came as far as planning a batch began."""

    def driver(self, at_most: int) -> Iterator[None]:
        """The micro-batch loop; a yield is where it may be killed."""
        ticks = iter(range(10**9))
        reader = QuorateStreamReader(
            self._options(at_most),
            source_schema(include_headers=False),
            monotonic=lambda: float(next(ticks)),
        )
        batch_id = max(self.offset_log, default=-1)
        start = self._load(batch_id - 1)
        if (latest_seen := self._load(batch_id)) is not None:
            assert reader.partitions(latest_seen, latest_seen) == []
        if batch_id in self.commit_log or batch_id < 0:
            start, batch_id = latest_seen, batch_id + 1
        while True:
            yield
            if start is None:
                start = _through_json(reader.initialOffset())
            yield
            if batch_id not in self.offset_log:
                planned = reader.latestOffset(start, reader.getDefaultReadLimit())
                # The very first batch runs even if it is empty.
                if json.dumps(planned) == json.dumps(start) and batch_id > 0:
                    continue
                if batch_id == 0:
                    self.first_start = start[TOPIC]
                self.offset_log[batch_id] = json.dumps(planned)
                yield
            end = self._load(batch_id)
            assert end is not None
            ranges = _ranges(reader, start, end)
            assert self.sink.setdefault(batch_id, ranges) == ranges
            yield
            self.commit_log.add(batch_id)
            reader.commit(end)
            start, batch_id = end, batch_id + 1

    def _options(self, at_most: int) -> StreamOptions:
        options = parse_stream_options(
            {
                "kafka.bootstrap.servers": "b:1",
                "subscribe": TOPIC,
                "startingOffsets": self.starting,
                "maxOffsetsPerTrigger": str(at_most),
            }
        )
        connection = ToLogs("b:1", logs=self.logs)
        return replace(options, reading=replace(options.reading, connection=connection))

    def _load(self, batch_id: int) -> dict[str, Any] | None:
        text = self.offset_log.get(batch_id)
        return None if text is None else json.loads(text)


def _through_json(offsets: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offsets))
    return found


def _ranges(reader: QuorateStreamReader, start: dict[str, Any], end: dict[str, Any]) -> Ranges:
    found: list[OffsetRange] = [each.value for each in reader.partitions(start, end)]
    return [(each.topic_partition, each.start, each.end) for each in found]


GROWTH_OF_A_PARTITION_MORE = 5


@given(
    starting=st.sampled_from(["earliest", "latest", "latest-3"]),
    at_most=st.integers(1, 20),
    lives=st.lists(st.lists(st.integers(0, GROWTH_OF_A_PARTITION_MORE), max_size=12), max_size=6),
)
def test_d2_each_offset_is_sunk_once_wherever_the_driver_is_killed(
    starting: str, at_most: int, lives: list[list[int]]
) -> None:
    """Each life of a driver is a list of what is produced before each of its steps."""
    logs = Logs([5, 0])
    spark = Spark(logs, starting)
    for life in lives:
        driver = spark.driver(at_most)
        for step, growth in enumerate(life):
            if growth == GROWTH_OF_A_PARTITION_MORE:
                logs.ends.append(2)
            else:
                logs.ends[step % len(logs.ends)] += growth
            next(driver)
    last_driver = spark.driver(at_most=1_000_000)
    for _ in range(20):
        next(last_driver)
    assert spark.first_start is not None
    for number, end in enumerate(logs.ends):
        begin = spark.first_start.get(str(number), 0)
        found = [
            offset
            for batch_id in sorted(spark.sink)
            for partition, start, until in spark.sink[batch_id]
            for offset in range(start, until)
            if partition.partition == number
        ]
        assert found == list(range(begin, end))
