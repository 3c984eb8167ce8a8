"""`commitGroup`: when a query tells its group how far it is, and when it must not.

The coordinator's side is in tests/unit/coordinator/test_external_commits.py.
"""

import itertools
import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from quorate.common.topic_partition import TopicPartition
from quorate.spark.committing.stream_commits import PAUSE_SECONDS, REFRESH_SECONDS, StreamCommits
from quorate.spark.errors import CallRefused, OptionError
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.read_options import (
    GroupCommits,
    parse_read_options,
    parse_stream_options,
)
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.schema import source_schema
from quorate.spark.streaming.stream_checkpoint import StreamOffsets
from quorate.spark.streaming.stream_reader import QuorateStreamReader
from quorate_proto.v1.errors_pb2 import COORDINATOR_NOT_AVAILABLE, NON_EMPTY_GROUP
from quorate_proto.v1.groups_pb2 import CommitOffsetsResponse
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record

SCHEMA = source_schema(include_headers=False)
MEMBERS = CommitOffsetsResponse(error_code=NON_EMPTY_GROUP, error_message="it has live members")
NOBODY = CommitOffsetsResponse(error_code=COORDINATOR_NOT_AVAILABLE)


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        for partition in (0, 1):
            records = [Record(n) for n in range(100)]
            batches = [records[at : at + 20] for at in range(0, 100, 20)]
            running.add("orders", partition, batches, leader=partition)
        yield running


def options(cluster: FakeRangeCluster, **given: object) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "fetchOffset.retryIntervalMs": "1",
        "fetchOffset.numRetries": "1",
        "subscribe": "orders",
        "commitGroup": "lake",
        **{name: str(value) for name, value in given.items()},
    }


def test_options_of_the_group() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "commitGroup": "lake"}
    for scope in (Scope.BATCH, Scope.STREAM):
        assert parse_read_options(given, scope).commits == GroupCommits("lake")
        back = {**given, "commitGroupMayGoBack": "true"}
        assert parse_read_options(back, scope).commits == GroupCommits("lake", may_go_back=True)
        del back["commitGroup"]
        with pytest.raises(OptionError, match="is about a group: give commitGroup, too"):
            parse_read_options(back, scope)


# -- streams ---------------------------------------------------------------------------------------


@pytest.fixture
def stream(cluster: FakeRangeCluster) -> Iterator[QuorateStreamReader]:
    given = options(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=60)
    ticks = itertools.count().__next__
    reader = QuorateStreamReader(parse_stream_options(given), SCHEMA, ticks)
    yield reader
    reader.stop()


def batch(reader: QuorateStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))
    )
    return found


def test_a_stream_commits_what_has_succeeded(
    cluster: FakeRangeCluster, stream: QuorateStreamReader
) -> None:
    initial = stream.initialOffset()
    assert [request.validate_only for request in cluster.commits] == [True]
    first = batch(stream, initial)
    stream.partitions(initial, first)
    assert cluster.committed() == [], "the batch is only planned"
    stream.commit(first)
    assert cluster.committed() == [{"orders-0": 30, "orders-1": 30}]
    second = batch(stream, first)
    assert len(cluster.committed()) == 1, "what was told is not told again"
    # A query that ends asks once more what there is, and commits no more.
    batch(stream, second)
    assert cluster.committed()[1:] == [{"orders-0": 60, "orders-1": 60}]


def test_a_restarted_stream_commits_what_its_checkpoint_says(cluster: FakeRangeCluster) -> None:
    given = options(cluster, startingOffsets="earliest")
    end = StreamOffsets({TopicPartition("orders", 0): 40}, dict(cluster.topic_ids))
    restarted = QuorateStreamReader(parse_stream_options(given), SCHEMA)
    batch(restarted, end.to_json())
    restarted.stop()
    assert cluster.committed() == [{"orders-0": 40}]


def test_a_stream_ends_where_the_group_has_members(
    cluster: FakeRangeCluster, stream: QuorateStreamReader
) -> None:
    initial = stream.initialOffset()
    end = batch(stream, initial)
    cluster.before_commit = lambda request: MEMBERS
    with pytest.raises(CallRefused, match="option commitGroup: it has live members"):
        stream.commit(end)
    with pytest.raises(CallRefused, match="option commitGroup: it has live members"):
        stream.initialOffset()


class Clock:
    now = 10_000.0

    def __call__(self) -> float:
        return self.now


def at(**offsets: int) -> StreamOffsets:
    ends = {TopicPartition("orders", int(name[1:])): offset for name, offset in offsets.items()}
    return StreamOffsets(ends, {"orders": b"orders----------"})


def test_only_news_are_told_and_once_an_hour_everything(cluster: FakeRangeCluster) -> None:
    given = parse_stream_options(options(cluster)).reading
    assert given.commits is not None
    clock = Clock()
    commits = StreamCommits(given.connection, given.commits, clock)
    for done in (at(p0=1, p1=1), at(p0=1, p1=5), at(p0=1, p1=5)):
        commits.reached(done)
    clock.now += REFRESH_SECONDS
    commits.reached(at(p0=1, p1=5))
    commits.reached(at(p0=1, p1=5))
    commits.close()
    assert cluster.committed() == [
        {"orders-0": 1, "orders-1": 1},
        {"orders-1": 5},
        {"orders-0": 1, "orders-1": 5},
    ]


def test_a_coordinator_that_is_away_holds_no_stream_up(
    cluster: FakeRangeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    given = parse_stream_options(options(cluster)).reading
    assert given.commits is not None
    clock = Clock()
    commits = StreamCommits(given.connection, given.commits, clock)
    asked: list[object] = []

    def nobody(request: object) -> CommitOffsetsResponse:
        asked.append(request)
        return NOBODY

    cluster.before_commit = nobody
    with caplog.at_level(logging.WARNING):
        commits.reached(at(p0=1))
    assert "the stream goes on, and commits later" in caplog.text
    tried = len(asked)
    clock.now += PAUSE_SECONDS / 2
    commits.reached(at(p0=2))
    assert len(asked) == tried > 0
    cluster.before_commit = lambda request: None
    clock.now += PAUSE_SECONDS / 2
    commits.reached(at(p0=2))
    commits.close()
    assert cluster.committed() == [{"orders-0": 2}]


# -- batch queries ---------------------------------------------------------------------------------


def reader_of(cluster: FakeRangeCluster, **given: object) -> QuorateReader:
    return QuorateReader(parse_read_options(options(cluster, **given), Scope.BATCH), SCHEMA)


def run(reader: QuorateReader, part: InputPartition, batches_max: int | None = None) -> int:
    """A task, in another process than the plan; how many rows it was asked for."""
    reader, part = pickle.loads(pickle.dumps((reader, part)))
    batches = reader.read(part)
    rows: int = sum(batch.num_rows for batch in itertools.islice(batches, batches_max))
    batches.close()  # type: ignore[attr-defined]
    return rows


def test_every_task_reports_its_part(cluster: FakeRangeCluster) -> None:
    reader = reader_of(cluster, minPartitions=5, endingOffsets='{"orders":{"0":90,"1":-1}}')
    parts = reader.partitions()
    assert [request.validate_only for request in cluster.commits] == [True]
    assert sum(run(reader, part) for part in parts) == 190
    reported = [request for request in cluster.commits if not request.validate_only]
    assert [(one.part.number, one.part.count) for one in reported] == [(n, 5) for n in range(5)]
    assert len({one.part.read_id for one in reported}) == 1
    ends = sorted((one.offsets[0].partition, one.offsets[0].offset) for one in reported)
    assert (0, 90) in ends
    assert ends[-1] == (1, 100)


def test_another_read_has_another_id(cluster: FakeRangeCluster) -> None:
    for _ in range(2):
        reader = reader_of(cluster, endingOffsets='{"orders":{"0":50,"1":0}}')
        (part,) = reader.partitions()
        run(reader, part)
    first, second = (one for one in cluster.commits if not one.validate_only)
    assert first.part.read_id != second.part.read_id


def test_a_task_that_is_cut_off_reports_nothing(cluster: FakeRangeCluster) -> None:
    reader = reader_of(cluster)
    part = reader.partitions()[0]
    assert 0 < run(reader, part, batches_max=1) < 100
    assert cluster.committed() == []


def test_a_group_with_members_is_refused_before_anything_is_read(
    cluster: FakeRangeCluster,
) -> None:
    cluster.before_commit = lambda request: MEMBERS
    with pytest.raises(CallRefused, match="option commitGroup: it has live members"):
        reader_of(cluster).partitions()
    assert cluster.reads == []


def test_a_coordinator_that_is_away_fails_no_task(
    cluster: FakeRangeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(cluster)
    part = reader.partitions()[0]
    cluster.before_commit = lambda request: NOBODY
    with caplog.at_level(logging.WARNING):
        assert run(reader, part) == 100
    assert "orders-0 [0, 100) was read, and its group does not show it" in caplog.text


def test_without_the_option_no_coordinator_is_asked(cluster: FakeRangeCluster) -> None:
    given = options(cluster)
    del given["commitGroup"]
    reader = QuorateReader(parse_read_options(given, Scope.BATCH), SCHEMA)
    assert sum(run(reader, part) for part in reader.partitions()) == 200
    assert cluster.commits == []
