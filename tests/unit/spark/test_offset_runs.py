"""Reading offsets alone: brokers send runs of them instead of batches that have no gaps."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.decoding.arrow_decoder import RUN_ROWS, ArrowDecoder
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.reading.range_reader import RangePolicy, RangeReader
from quorate.spark.retries import RetryPolicy
from quorate_proto.v1.replication_pb2 import RangeHeader
from tests.support.fake_range_cluster import EndStream, FakeRangeCluster, FrameAbout
from tests.support.record_batches import Record

ORDERS = TopicPartition("orders", 0)
OFFSET = pa.schema([("offset", pa.int64())])
PLACES = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("topic", pa.string())])
WITH_A_TIME = pa.schema([("offset", pa.int64()), ("timestampType", pa.int32())])
COMPACTED = [42, 45, 49]
OFFSETS = [*range(40), *COMPACTED, *range(50, 100)]


@pytest.fixture
def cluster() -> Iterator[FakeRangeCluster]:
    """Batches of ten, one of which has gaps."""
    batches = [[Record(n) for n in range(b, b + 10)] for b in range(0, 100, 10)]
    batches[4] = [Record(n) for n in COMPACTED]
    with FakeRangeCluster() as running:
        running.sends_runs = True
        running.add("orders", 0, batches)
        yield running


def read(
    cluster: FakeRangeCluster, start: int, end: int, schema: pa.Schema = OFFSET
) -> list[dict[str, object]]:
    retries = RetryPolicy(3, 100, lambda seconds: None)
    with ClusterClient(cluster.bootstrap, retries) as client:
        client.refresh([ORDERS])
        reader = RangeReader(
            client, OffsetRange(ORDERS, start, end), schema, RangePolicy(True, 10_000, retries)
        )
        return [row for batch in reader.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (3, 97), (15, 16), (41, 47), (43, 60)])
def test_each_offset_with_a_record_is_read_once(
    cluster: FakeRangeCluster, start: int, end: int
) -> None:
    expected = [offset for offset in OFFSETS if start <= offset < end]
    assert [row["offset"] for row in read(cluster, start, end)] == expected


def test_rows_of_runs_are_those_of_batches(cluster: FakeRangeCluster) -> None:
    with_runs = read(cluster, 5, 95, PLACES)
    cluster.sends_runs = False
    assert with_runs == read(cluster, 5, 95, PLACES)
    assert with_runs[0] == {"partition": 0, "offset": 5, "topic": "orders"}


@pytest.mark.parametrize(("schema", "asks"), [(PLACES, True), (WITH_A_TIME, False)])
def test_runs_are_asked_for_only_where_they_are_enough(
    cluster: FakeRangeCluster, schema: pa.Schema, *, asks: bool
) -> None:
    asked: list[bool] = []

    def before_frame(about: FrameAbout) -> None:
        asked.append(about.request.offsets_only)

    cluster.before_frame = before_frame
    assert len(read(cluster, 0, 100, schema)) == len(OFFSETS)
    assert set(asked) == {asks}


def test_reading_goes_on_behind_the_last_run(cluster: FakeRangeCluster) -> None:
    broken: list[int] = []

    def before_frame(about: FrameAbout) -> RangeHeader | None:
        if about.index == 2 and len(broken) < 2:
            broken.append(about.request.start_offset)
            raise EndStream
        return None

    cluster.before_frame = before_frame
    assert [row["offset"] for row in read(cluster, 5, 100)] == OFFSETS[5:]
    assert broken == [5, 20]


def test_long_runs_come_in_batches_of_bounded_size() -> None:
    decoder = ArrowDecoder(ORDERS, 7, 3 * RUN_ROWS, OFFSET)
    sizes, offsets = [], []
    for batch in decoder.decode_run(0, 4 * RUN_ROWS):
        sizes.append(batch.num_rows)
        offsets += batch.column("offset").to_pylist()
        assert decoder.next_offset == offsets[-1] + 1
    assert offsets == list(range(7, 3 * RUN_ROWS))
    assert max(sizes) == RUN_ROWS
    assert decoder.next_offset == 4 * RUN_ROWS


def test_a_run_that_was_read_already_has_no_rows() -> None:
    decoder = ArrowDecoder(ORDERS, 7, 100, OFFSET)
    assert list(decoder.decode_run(0, 7)) == []
    assert decoder.next_offset == 7
