"""A streaming query as Spark drives it, by hand, against brokers inside this process."""

import itertools
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from quorate.spark.errors import (
    CheckpointError,
    DataLoss,
    OptionError,
    RangeUnavailable,
    UnknownTopic,
)
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.options.read_options import parse_stream_options
from quorate.spark.schema import source_schema
from quorate.spark.source import QuorateDataSource
from quorate.spark.streaming.stream_planner import StreamPlanner
from quorate.spark.streaming.stream_reader import QuorateStreamReader
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record

TIME_MS = 1_700_000_000_000
Offsets = dict[str, dict[str, int]]


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    with FakeRangeCluster() as running:
        running.add("orders", 0, [[Record(n, TIME_MS + n) for n in range(100)]])
        running.add("orders", 1, [[Record(n, TIME_MS + n) for n in range(20, 60)]], leader=1)
        yield running


def options_for(cluster: FakeRangeCluster, given: Mapping[str, object]) -> dict[str, str]:
    subscription = (
        {} if "subscribePattern" in given or "assign" in given else {"subscribe": "orders"}
    )
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "fetchOffset.retryIntervalMs": "1",
        "fetchOffset.numRetries": "2",
        **subscription,
        **{name: str(value) for name, value in given.items()},
    }


@dataclass
class Query:
    """What Spark does with a reader; a new one over the same offsets is a restart."""

    cluster: FakeRangeCluster
    options: dict[str, object]
    readers: list[QuorateStreamReader] = field(default_factory=list)

    def __enter__(self) -> "Query":
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self.readers:
            reader.stop()

    def start(self, **changes: object) -> QuorateStreamReader:
        options = parse_stream_options(options_for(self.cluster, {**self.options, **changes}))
        schema = source_schema(include_headers=False)
        once_a_second = itertools.count().__next__
        self.readers.append(QuorateStreamReader(options, schema, once_a_second))
        return self.readers[-1]


@pytest.fixture
def query(cluster: FakeRangeCluster) -> Iterator[Callable[..., Query]]:
    with Query(cluster, {}) as running:

        def make(**options: object) -> Query:
            running.options = options
            return running

        yield make


def plain(offsets: dict[str, Any]) -> Offsets:
    """As Spark's Kafka source would write them."""
    through_json = json.loads(json.dumps(offsets))
    return {topic: found for topic, found in through_json.items() if topic != "@quorate"}


def batch(reader: QuorateStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """The end of the next batch, by the options' own limits."""
    return json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))  # type: ignore[no-any-return]


def ranges(
    reader: QuorateStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, int, int]]:
    found: list[OffsetRange] = [each.value for each in reader.partitions(start, end)]
    return [(str(each.topic_partition), each.start, each.end) for each in found]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"0": 100, "1": 60}),
        ({"startingOffsets": "latest"}, {"0": 100, "1": 60}),
        ({"startingOffsets": "earliest"}, {"0": 0, "1": 20}),
        ({"startingOffsets": '{"orders":{"0":-1,"1":-2}}'}, {"0": 100, "1": 20}),
        ({"startingOffsets": '{"orders":{"0":7,"1":60}}'}, {"0": 7, "1": 60}),
        ({"startingOffsets": "latest-50"}, {"0": 50, "1": 20}),
        ({"startingTimestamp": TIME_MS + 30}, {"0": 30, "1": 30}),
        (
            {"startingOffsetsByTimestamp": f'{{"orders":{{"0":{TIME_MS},"1":0}}}}'},
            {"0": 0, "1": 20},
        ),
        (
            {"startingTimestamp": TIME_MS + 70, "startingOffsetsByTimestampStrategy": "latest"},
            {"0": 70, "1": 60},
        ),
        ({"assign": '{"orders":[1]}'}, {"1": 60}),
        (
            {"startingOffsets": '{"orders":{"0":101,"1":5}}', "failOnDataLoss": "false"},
            {"0": 100, "1": 20},
        ),
    ],
)
def test_where_a_query_begins(
    query: Callable[..., Query], options: dict[str, object], expected: dict[str, int]
) -> None:
    assert plain(query(**options).start().initialOffset()) == {"orders": expected}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"subscribe": "orderz"}, UnknownTopic, "no topic 'orderz'"),
        ({"startingOffsets": '{"orders":{"0":5}}'}, OptionError, "starting offsets lack orders-1"),
        (
            {"startingOffsets": '{"orders":{"0":101,"1":60}}'},
            RangeUnavailable,
            r"offset 101 of topic orders partition 0.*the log holds \[0, 100\)",
        ),
        ({"startingTimestamp": TIME_MS + 70}, RangeUnavailable, "Strategy=latest"),
        ({"endingOffsets": "latest"}, OptionError, "endingOffsets is not for a streaming query"),
        (
            {"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 4},
            OptionError,
            "minOffsetsPerTrigger is 5, which is more than maxOffsetsPerTrigger, 4",
        ),
        ({"maxTriggerDelay": "soon"}, OptionError, "maxTriggerDelay is 'soon': it must be a dur"),
    ],
)
def test_refusals(
    query: Callable[..., Query], options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        query(**options).start().initialOffset()


def test_d2_batches_follow_each_other(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    reader = query(startingOffsets="earliest", maxOffsetsPerTrigger=70).start()
    assert reader.getDefaultReadLimit() == ReadMaxRows(70)
    start = reader.initialOffset()
    seen = []
    while (end := batch(reader, start)) != start:
        seen += ranges(reader, start, end)
        reader.commit(end)
        start = end
    assert seen == [
        ("orders-0", 0, 50), ("orders-1", 20, 40), ("orders-0", 50, 100), ("orders-1", 40, 60),
    ]  # fmt: skip
    cluster.logs[next(iter(cluster.logs))].high_watermark = 105
    assert ranges(reader, start, batch(reader, start)) == [("orders-0", 100, 105)]
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert plain(latest) == {"orders": {"0": 105, "1": 60}}


def test_equal_offsets_are_equal_text(query: Callable[..., Query]) -> None:
    reader = query(startingOffsets="earliest").start()
    start = reader.initialOffset()
    end = batch(reader, start)
    text = json.dumps(end)
    assert json.dumps(batch(reader, end)) == text
    assert json.dumps(batch(query().start(), json.loads(text))) == text


def test_the_engine_may_lift_the_limits(query: Callable[..., Query]) -> None:
    reader = query(startingOffsets="earliest", maxOffsetsPerTrigger=1).start()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert plain(end) == {"orders": {"0": 100, "1": 60}}


@pytest.mark.parametrize("options", [{"maxRecordsPerPartition": 40}, {"minPartitions": 4}])
def test_ranges_are_split(query: Callable[..., Query], options: dict[str, object]) -> None:
    reader = query(startingOffsets="earliest", **options).start()
    start = reader.initialOffset()
    assert ranges(reader, start, batch(reader, start)) == [
        ("orders-0", 0, 33), ("orders-0", 33, 66), ("orders-0", 66, 100), ("orders-1", 20, 60),
    ]  # fmt: skip


def test_d2_a_restart_in_the_first_batch_repeats_it(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    killed = query().start()
    start = killed.initialOffset()
    grow(cluster, 110)
    end = batch(killed, start)
    assert ranges(killed, start, end) == [("orders-0", 100, 110)]
    grow(cluster, 120)
    restarted = query().start()
    # "latest" is another offset by now; Spark has kept nothing but the batch's end.
    another = restarted.initialOffset()
    assert plain(another) == {"orders": {"0": 120, "1": 60}}
    assert ranges(restarted, another, end) == [("orders-0", 100, 110)]
    assert ranges(restarted, end, batch(restarted, end)) == [("orders-0", 110, 120)]


def test_d2_a_restart_before_anything_was_there(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    # Spark's first batch may be empty: it ends where it starts.
    start = query().start().initialOffset()
    grow(cluster, 110)
    restarted = query().start()
    assert ranges(restarted, restarted.initialOffset(), start) == []
    assert ranges(restarted, start, batch(restarted, start)) == [("orders-0", 100, 110)]


def grow(cluster: FakeRangeCluster, high_watermark: int) -> None:
    cluster.logs[next(iter(cluster.logs))].high_watermark = high_watermark


def test_available_now_ends_at_what_was_there(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    reader = query(
        startingOffsets="earliest", maxOffsetsPerTrigger=100, minOffsetsPerTrigger=90
    ).start()
    reader.prepareForTriggerAvailableNow()
    first = batch(reader, reader.initialOffset())
    grow(cluster, 200)
    cluster.add("orders", 2, [[Record(0)]])
    # Less than minOffsetsPerTrigger is left, and more than that will never be.
    second = batch(reader, first)
    assert plain(second) == {"orders": {"0": 100, "1": 60}}
    assert batch(reader, second) == second


def test_minimum_and_delay(cluster: FakeRangeCluster) -> None:
    now = [1000.0]
    options = options_for(cluster, {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "30s"})
    planner = StreamPlanner(parse_stream_options(options), monotonic=lambda: now[0])
    try:
        start = planner.initial(0)
        grow(cluster, 101)
        first = planner.next(start, limited=True)
        assert first is not start  # the first batch waits for nothing
        grow(cluster, 110)
        now[0] += 29.8
        assert planner.next(first, limited=True) is first
        now[0] += 0.2
        second = planner.next(first, limited=True)
        assert second is not first
        grow(cluster, 119)
        assert planner.next(second, limited=True) is second
        now[0] += 1
        assert planner.next(second, limited=False) is not second  # say, for Trigger.Once
        grow(cluster, 120)
        third = planner.next(second, limited=True)
        assert third is not second
        now[0] += 30
        assert planner.next(third, limited=True) is third
        now[0] += 1
        grow(cluster, 121)
        assert planner.next(third, limited=True) is not third  # the wait is over already
    finally:
        planner.close()


@pytest.mark.parametrize("options", [{}, {"minOffsetsPerTrigger": 10}])
def test_the_leaders_are_not_asked_all_the_time(
    cluster: FakeRangeCluster, options: dict[str, object]
) -> None:
    now, looks = [1000.0], [0]

    def look() -> None:
        looks[0] += 1

    planner = StreamPlanner(
        parse_stream_options(options_for(cluster, {"startingOffsets": "latest-1", **options})),
        monotonic=lambda: now[0],
    )
    try:
        start = planner.next(planner.initial(0), limited=True)
        cluster.on_describe = look
        for _ in range(100):
            assert planner.next(start, limited=True) is start
            now[0] += 0.01
        assert 9 <= looks[0] <= 11
        grow(cluster, 110)
        now[0] += 0.1
        end = planner.next(start, limited=True)
        # More may be there at once: a batch under way is not waited for.
        grow(cluster, 120)
        assert planner.next(end, limited=True) is not end
    finally:
        planner.close()


def test_the_minimum_is_the_default_limit(query: Callable[..., Query]) -> None:
    assert query(minOffsetsPerTrigger=5).start().getDefaultReadLimit() == ReadMinRows(5)
    assert query().start().getDefaultReadLimit() == ReadAllAvailable()


def test_new_partitions_and_topics_begin_at_their_earliest(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    reader = query(subscribePattern="ord.*").start()
    start = reader.initialOffset()
    cluster.add("orders", 2, [[Record(n) for n in range(5)]])
    cluster.add("ordinary", 0, [[Record(n) for n in range(3)]])
    cluster.add("another", 0, [[Record(0)]])
    end = batch(reader, start)
    assert ranges(reader, start, end) == [("orders-2", 0, 5), ("ordinary-0", 0, 3)]
    # The same after a restart, though there is more by then.
    cluster.logs[next(reversed(cluster.logs))].high_watermark = 9
    assert ranges(query(subscribePattern="ord.*").start(), start, end) == ranges(reader, start, end)


@dataclass(frozen=True)
class Mishap:
    """Something between a stream's first and second batch, and what becomes of it."""

    happen: Callable[[FakeRangeCluster], object]
    message: str
    goes_on: list[tuple[str, int, int]]


def retention(cluster: FakeRangeCluster) -> None:
    log = cluster.logs[next(iter(cluster.logs))]
    log.log_start, log.high_watermark = 105, 110


def deletion(cluster: FakeRangeCluster) -> None:
    for partition in [p for p in cluster.logs if p.topic == "orders"]:
        del cluster.logs[partition]
    del cluster.topic_ids["orders"]


def creation_anew(cluster: FakeRangeCluster) -> None:
    deletion(cluster)
    cluster.topic_ids["orders"] = b"another topic id"
    cluster.add("orders", 0, [[Record(n) for n in range(7)]])


MISHAPS = {
    "retention": Mishap(
        retention, r"offsets \[100, 105\) of orders-0: the log holds", [("orders-0", 105, 110)]
    ),
    "truncation": Mishap(
        lambda cluster: grow(cluster, 90), "orders-0 held offsets up to 100 before", []
    ),
    "deletion": Mishap(deletion, "topic orders partition 0, 1 is deleted", []),
    "creation anew": Mishap(
        creation_anew, "topic orders was deleted and created anew", [("orders-0", 0, 7)]
    ),
    "a new partition that has lost records": Mishap(
        lambda cluster: cluster.add("orders", 2, [[Record(n) for n in range(5, 9)]]),
        "orders-2 is new to the query, and its offsets before 5",
        [("orders-2", 5, 9)],
    ),
}


@pytest.mark.parametrize("name", MISHAPS)
def test_data_loss_before_a_batch_is_planned(
    query: Callable[..., Query], cluster: FakeRangeCluster, name: str
) -> None:
    mishap, reader = MISHAPS[name], query().start()
    start = reader.initialOffset()
    mishap.happen(cluster)
    with pytest.raises(DataLoss, match=f"{mishap.message}.*failOnDataLoss=false to go on"):
        batch(reader, start)
    reader = query(failOnDataLoss=False).start()
    end = batch(reader, start)
    assert ranges(reader, start, end) == mishap.goes_on
    # And from there on as ever, also with failOnDataLoss.
    if name != "deletion":
        assert batch(query().start(), end) == end


@pytest.mark.parametrize("name", ["retention", "truncation", "deletion", "creation anew"])
def test_data_loss_after_a_batch_is_planned(
    query: Callable[..., Query], cluster: FakeRangeCluster, name: str
) -> None:
    mishap, reader = MISHAPS[name], query().start()
    start = reader.initialOffset()
    grow(cluster, 104)
    end = batch(reader, start)
    mishap.happen(cluster)
    with pytest.raises(DataLoss):
        reader.partitions(start, end)
    assert ranges(query(failOnDataLoss=False).start(), start, end) == []


def test_without_fail_on_data_loss_a_deleted_topic_may_come_back(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    reader = query(subscribe="orders,other", failOnDataLoss=False).start()
    cluster.add("other", 0, [[Record(0)]])
    start = reader.initialOffset()
    deletion(cluster)
    end = batch(reader, start)
    assert plain(end) == {"other": {"0": 1}}
    looks: list[None] = []
    cluster.on_describe = lambda: looks.append(None)
    assert batch(reader, end) == end
    assert len(looks) == 2  # each broker is asked, and no try is repeated
    cluster.add("orders", 0, [[Record(n) for n in range(7)]])
    assert ranges(reader, end, batch(reader, end)) == [("orders-0", 0, 7)]


def test_a_topic_may_be_deleted_while_its_offsets_are_asked_for(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    cluster.add("other", 0, [[Record(0)]])
    reader = query(subscribe="orders,other", failOnDataLoss=False).start()
    start = reader.initialOffset()
    looks: list[None] = []

    def lose_the_leader_and_then_the_topic() -> None:
        looks.append(None)
        for log in cluster.logs.values():
            log.leader = 7 if len(looks) == 1 else 0
        if len(looks) == 2:
            deletion(cluster)

    cluster.on_describe = lose_the_leader_and_then_the_topic
    assert plain(batch(reader, start)) == {"other": {"0": 1}}


def test_a_subscription_may_shrink_and_grow_between_runs(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    cluster.add("other", 0, [[Record(0)]])
    start = query(subscribe="orders").start().initialOffset()
    grown = query(subscribe="orders,other").start()
    end = batch(grown, start)
    assert ranges(grown, start, end) == [("other-0", 0, 1)]
    with pytest.raises(DataLoss, match="topic other partition 0 is deleted, or no longer subscr"):
        batch(query(subscribe="orders").start(), end)
    with pytest.raises(DataLoss, match="the cluster has no topic odrers, which is subscribed to"):
        batch(query(subscribe="orders,odrers").start(), start)


def test_a_loss_that_a_broker_takes_back_is_none(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    reader = query().start()
    start = reader.initialOffset()
    whole = dict(cluster.logs)
    looks: list[None] = []

    def forget() -> None:
        """A broker that has not heard of partition 1 yet, the first time it is asked."""
        looks.append(None)
        cluster.logs = whole if len(looks) > 1 else dict(list(whole.items())[:1])

    cluster.on_describe = forget
    assert batch(reader, start) == start
    assert len(looks) == 2


def test_a_foreign_checkpoint_is_refused(query: Callable[..., Query]) -> None:
    foreign = {"orders": {"0": 23, "1": 42}}
    reader = query().start()
    with pytest.raises(CheckpointError, match="not written by format quorate"):
        reader.latestOffset(foreign, ReadAllAvailable())
    # Spark's first question after a restart.
    with pytest.raises(CheckpointError, match="not written by format quorate"):
        reader.partitions(foreign, foreign)


def test_a_reader_travels_to_executors_and_reads_there(
    query: Callable[..., Query], cluster: FakeRangeCluster
) -> None:
    reader = query(startingOffsets="earliest", maxRecordsPerPartition=30).start()
    source = QuorateDataSource(options_for(cluster, {}))
    fresh: QuorateStreamReader = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
    start = reader.initialOffset()
    rows = [
        (row["partition"], row["offset"])
        for partition in reader.partitions(start, batch(reader, start))
        for found in fresh.read(pickle.loads(pickle.dumps(partition)))
        for row in found.select(["partition", "offset"]).to_pylist()
    ]
    assert rows == [(0, n) for n in range(100)] + [(1, n) for n in range(20, 60)]
