"""Tests of the suites of Spark's own Kafka source, told for this one. Each names its model there.

Where this source answers otherwise, the test says so.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from quorate.common.topic_partition import TopicPartition
from quorate.spark.errors import DataLoss, OptionError, RangeUnavailable, SchemaError
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.read_options import parse_read_options, parse_stream_options
from quorate.spark.reading.batch_reader import QuorateReader
from quorate.spark.reading.range_planning import split_ranges
from quorate.spark.schema import source_schema
from quorate.spark.streaming.stream_reader import QuorateStreamReader
from quorate.spark.writing.data_writers import QuorateStreamWriter
from quorate.spark.writing.partitioner import Partitioner, TargetTopic
from quorate.spark.writing.row_columns import rows_of
from quorate.spark.writing.write_options import parse_write_options
from tests.support.fake_range_cluster import FakeRangeCluster
from tests.support.record_batches import Record

TIME_MS = 1_700_000_000_000
SCHEMA = source_schema(include_headers=False)


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    """Three partitions with thirty records each: ten at each of three times."""
    with FakeRangeCluster() as running:
        for partition in range(3):
            records = [Record(n, TIME_MS + n // 10 * 1000, value=b"%d" % n) for n in range(30)]
            running.add("orders", partition, [records])
        yield running


def options_for(cluster: FakeRangeCluster, given: Mapping[str, object]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "fetchOffset.retryIntervalMs": "1",
        "fetchOffset.numRetries": "2",
        **({} if "subscribePattern" in given else {"subscribe": "orders"}),
        **{name: str(value) for name, value in given.items()},
    }


def reader_of(cluster: FakeRangeCluster, **given: object) -> QuorateReader:
    return QuorateReader(parse_read_options(options_for(cluster, given), Scope.BATCH), SCHEMA)


def planned(reader: QuorateReader) -> list[tuple[int, int, int]]:
    found: list[OffsetRange] = [each.value for each in reader.partitions()]
    return sorted((each.topic_partition.partition, each.start, each.end) for each in found)


def offsets_read(reader: QuorateReader) -> list[int]:
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return sorted(offset for batch in batches for offset in batch.column("offset").to_pylist())


def times(*of_partitions: int) -> str:
    pairs = ",".join(f'"{n}":{time_ms}' for n, time_ms in enumerate(of_partitions))
    return f'{{"orders":{{{pairs}}}}}'


# --- KafkaRelationSuiteBase -----------------------------------------------------------------------


def test_late_binding_start_offsets(cluster: FakeRangeCluster) -> None:
    """Offsets are found when a query is planned, not when the DataFrame is made. Spark keeps the
    plan of a Python source, so that `load()` is to be called again for what is new."""
    reader = reader_of(cluster, startingOffsets="earliest", endingOffsets="latest")
    assert planned(reader) == [(n, 0, 30) for n in range(3)]
    for log in cluster.logs.values():
        log.log_start = 30
    assert planned(reader) == []
    for log in cluster.logs.values():
        log.high_watermark = 40
    assert planned(reader) == [(n, 30, 40) for n in range(3)]


def test_no_matched_offset_for_timestamp_starting_offsets(cluster: FakeRangeCluster) -> None:
    too_late = times(TIME_MS + 1000, TIME_MS + 1000, (1 << 63) // 1_000_000)
    with pytest.raises(
        RangeUnavailable, match="no record of topic orders partition 2 is at or after"
    ):
        planned(reader_of(cluster, startingOffsetsByTimestamp=too_late))
    with pytest.raises(
        RangeUnavailable, match="no record of topic orders partition 0 is at or after"
    ):
        planned(reader_of(cluster, startingTimestamp=TIME_MS + 9000))
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert planned(reader_of(cluster, startingOffsetsByTimestamp=too_late, **latest)) == [
        (0, 10, 30),
        (1, 10, 30),
    ]


def test_preferences_on_offset_related_options(cluster: FakeRangeCluster) -> None:
    second = times(*[TIME_MS + 1000] * 3)
    third = times(*[TIME_MS + 2000] * 3)
    starting: dict[str, object] = {"startingOffsets": "earliest"}
    assert planned(reader_of(cluster, **starting)) == [(n, 0, 30) for n in range(3)]
    starting["startingOffsetsByTimestamp"] = second
    assert planned(reader_of(cluster, **starting)) == [(n, 10, 30) for n in range(3)]
    starting["startingTimestamp"] = TIME_MS + 2000
    assert planned(reader_of(cluster, **starting)) == [(n, 20, 30) for n in range(3)]
    ending: dict[str, object] = {"endingOffsets": "latest"}
    assert planned(reader_of(cluster, **ending)) == [(n, 0, 30) for n in range(3)]
    ending["endingOffsetsByTimestamp"] = third
    assert planned(reader_of(cluster, **ending)) == [(n, 0, 20) for n in range(3)]
    ending["endingTimestamp"] = TIME_MS + 1000
    assert planned(reader_of(cluster, **ending)) == [(n, 0, 10) for n in range(3)]


def test_reuse_same_dataframe_in_query(cluster: FakeRangeCluster) -> None:
    """A reader may be used twice in one query, as in a union of a DataFrame with itself."""
    reader = reader_of(cluster, endingOffsets="latest")
    assert offsets_read(reader) == offsets_read(reader) == sorted([*range(30)] * 3)


# --- KafkaMicroBatchSourceSuiteBase ---------------------------------------------------------------


@pytest.fixture
def stream(cluster: FakeRangeCluster) -> Iterator[Any]:
    readers: list[QuorateStreamReader] = []

    def start(**given: object) -> QuorateStreamReader:
        options = parse_stream_options(options_for(cluster, given))
        once_a_second = itertools.count().__next__
        readers.append(QuorateStreamReader(options, SCHEMA, once_a_second))
        return readers[-1]

    yield start
    for reader in readers:
        reader.stop()


def next_batch(reader: QuorateStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def ranges(
    reader: QuorateStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, int, int]]:
    found: list[OffsetRange] = [each.value for each in reader.partitions(start, end)]
    return sorted((str(each.topic_partition), each.start, each.end) for each in found)


def recreate(cluster: FakeRangeCluster, topic: str, partitions: int, records: int) -> None:
    for log in [one for one in cluster.logs if one.topic == topic]:
        del cluster.logs[log]
    cluster.topic_ids[topic] = b"another topic id"
    for number in range(partitions):
        cluster.add(topic, number, [[Record(n) for n in range(records)]])


def test_subscribe_topic_by_pattern_with_topic_recreation_between_batches(
    cluster: FakeRangeCluster,
    stream: Any,  # noqa: ANN401
) -> None:
    cluster.add("orders-1", 0, [[Record(n) for n in range(3)]])
    cluster.add("orders-2", 0, [[Record(n) for n in range(3)]])
    given = {
        "subscribePattern": "orders-.*",
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
    }
    reader = stream(**given)
    start = reader.initialOffset()
    end = next_batch(reader, start)
    assert ranges(reader, start, end) == [("orders-1-0", 0, 3), ("orders-2-0", 0, 3)]
    recreate(cluster, "orders-1", 1, 1)
    cluster.add("orders-2", 0, [[Record(n) for n in range(6)]])
    again = next_batch(reader, end)
    assert ranges(reader, end, again) == [("orders-1-0", 0, 1), ("orders-2-0", 3, 6)]


def test_spark_41375_empty_partitions_should_not_record_to_latest_offset(
    cluster: FakeRangeCluster,
    stream: Any,  # noqa: ANN401
) -> None:
    """A broker that knows no topic for a moment must not make the query begin anew."""
    reader = stream(subscribePattern="orders", startingOffsets="earliest")
    end = next_batch(reader, reader.initialOffset())
    whole, looks = dict(cluster.logs), itertools.count()

    def forget_once() -> None:
        cluster.logs = whole if next(looks) else {}

    cluster.on_describe = forget_once
    assert next_batch(reader, end) == end
    assert next(looks) > 1


@pytest.mark.parametrize(
    ("partitions", "records"),
    [
        pytest.param(2, 30, id="topic partitions got unavailable"),
        pytest.param(3, 20, id="offsets in planned topic partitions got unavailable"),
    ],
)
def test_available_now_fails_if_what_was_planned_is_no_longer_there(
    cluster: FakeRangeCluster,
    stream: Any,  # noqa: ANN401
    partitions: int,
    records: int,
) -> None:
    """Query with Trigger.AvailableNow should throw error during subsequent batches."""
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger=30)
    reader.prepareForTriggerAvailableNow()
    end = next_batch(reader, reader.initialOffset())
    recreate(cluster, "orders", partitions, records)
    with pytest.raises(DataLoss, match="topic orders was deleted and created anew"):
        reader.partitions(end, next_batch(reader, end))


@pytest.mark.parametrize("what", ["a partition is gone", "the log is shorter"])
def test_available_now_fails_without_a_new_topic_as_well(
    cluster: FakeRangeCluster,
    stream: Any,  # noqa: ANN401
    what: str,
) -> None:
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger=30)
    reader.prepareForTriggerAvailableNow()
    end = next_batch(reader, reader.initialOffset())
    if what == "a partition is gone":
        del cluster.logs[TopicPartition("orders", 2)]
    else:
        cluster.logs[TopicPartition("orders", 2)].high_watermark = 5
    with pytest.raises(DataLoss, match="orders"):
        reader.partitions(end, next_batch(reader, end))


# --- KafkaSinkStreamingSuiteBase, KafkaSinkBatchSuiteBase -----------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": IntegerType(), "value": StringType()}, "column 'topic' is int, not string"),
        ({"topic": StringType(), "value": IntegerType()}, "column 'value' is int, not string or b"),
        (
            {"topic": StringType(), "key": IntegerType(), "value": StringType()},
            "column 'key' is int, not string or binary",
        ),
        (
            {"topic": StringType(), "value": StringType(), "partition": StringType()},
            "column 'partition' is string, not int",
        ),
    ],
)
def test_streaming_write_data_with_valid_schema_but_wrong_types(
    columns: dict[str, Any], message: str
) -> None:
    schema = StructType()
    for name, type_ in columns.items():
        schema = schema.add(name, type_)
    options = parse_write_options({"kafka.bootstrap.servers": "b:9092"})
    with pytest.raises(SchemaError, match=message):
        QuorateStreamWriter(options, schema)


def test_batch_partition_column_and_partitioner_priorities() -> None:
    """There is no `kafka.partitioner.class` here: it is refused, with the column as the advice."""

    def places(partition: pa.Array | None) -> set[int]:
        keys = pa.array([b"%d" % n for n in range(5)])
        columns = {"value": keys, "key": keys}
        if partition is not None:
            columns["partition"] = partition
        chooser = Partitioner(lambda topic: TargetTopic(topic.encode(), 4, 1000), "t", 0)
        parts = chooser.split(rows_of(pa.record_batch(columns), topic_column=False, now_ms=0))
        return {chooser.targets[part.slot].partition.partition for part in parts}

    by_key = places(None)
    assert len(by_key) > 1
    assert places(pa.array([2] * 5, pa.int32())) == {2}
    assert places(pa.array([None] * 5, pa.int32())) == by_key
    with pytest.raises(OptionError, match=r"partitioner\.class is not supported: .*column partit"):
        parse_write_options({"kafka.bootstrap.servers": "b:1", "kafka.partitioner.class": "X"})


# --- KafkaOffsetRangeCalculatorSuite --------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "min_ranges", "expected"),
    [
        # Spark makes seven ranges of these, [3, 3, 4] of both of the first.
        pytest.param(
            [10, 10, 1], 6, [[3, 3, 4], [5, 5], [1]], id="SPARK-28489: never drop offsets"
        ),
        pytest.param(
            [10_000, 15_000, 20_000],
            9,
            [[5000] * 2, [5000] * 3, [5000] * 4],
            id="SPARK-36576: 0 small unsplit ranges and 3 large split ranges",
        ),
        pytest.param(
            [500, 12_000, 15_001],
            6,
            [[500], [6000] * 2, [5000, 5000, 5001]],
            id="SPARK-36576: 1 small unsplit range and 2 large split ranges",
        ),
        pytest.param(
            [1, 1, 10_000],
            6,
            [[1], [1], [2500] * 4],
            id="SPARK-36576: 2 small unsplit ranges and 1 large split range",
        ),
    ],
)
def test_offset_range_calculator(
    sizes: list[int], min_ranges: int, expected: list[list[int]]
) -> None:
    whole = [OffsetRange(TopicPartition("t", n), 0, size) for n, size in enumerate(sizes)]
    pieces = split_ranges(whole, min_ranges=min_ranges, max_size=None)
    found = [
        [piece.size for piece in pieces if piece.topic_partition == one.topic_partition]
        for one in whole
    ]
    assert found == expected
