"""Spark against real brokers: the same records that confluent-kafka consumes, to the byte."""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from quorate.client.results import NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.mixed_records import SCHEMA, consume_partition, produce_mixed
from tests.support.whole_cluster import wait_until_known

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "mixed"
PARTITIONS = 12
RANGE_RECORDS_MAX = 20_000
"""Of one partition in a query whose rows come to the driver."""

Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Filled:
    """A cluster with records of every kind, and what confluent-kafka consumes of them."""

    bootstrap: str
    consumed: list[pa.Table]
    """By partition; see `mixed_records.SCHEMA`."""

    @property
    def whole(self) -> Ranges:
        return {n: (0, table.num_rows) for n, table in enumerate(self.consumed)}

    def load(self, spark: SparkSession, ranges: Ranges, **options: object) -> DataFrame:
        """The ranges as a user would ask for them."""
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "assign": json.dumps({TOPIC: sorted(ranges)}),
            "startingOffsets": offsets_json(ranges, 0),
            "endingOffsets": offsets_json(ranges, 1),
            "includeHeaders": "true",
            **{name: str(value) for name, value in options.items()},
        }
        return spark.read.format("quorate").options(**given).load()


def offsets_json(ranges: Ranges, side: int) -> str:
    return json.dumps({TOPIC: {str(partition): edge[side] for partition, edge in ranges.items()}})


def uneven(total: int) -> list[int]:
    """``total`` in parts that are all different."""
    parts = [total * (n + 6) // sum(range(6, 6 + PARTITIONS)) for n in range(PARTITIONS)]
    return [*parts[:-1], total - sum(parts[:-1])]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=2, log_retention_ms=-1) as running:
        yield running


@pytest.fixture(scope="module")
def filled(cluster: RunningCluster, request: pytest.FixtureRequest) -> Filled:
    """Parameter: how many records, and one of how many is large."""
    total, large = request.param
    with cluster.admin() as admin:
        new = NewTopic(name=TOPIC, num_partitions=PARTITIONS)
        admin.create_topics([new])[0].raise_for_error()
    wait_until_known(cluster, TOPIC, PARTITIONS)
    counts = uneven(total)
    produce_mixed(cluster.bootstrap, TOPIC, counts, seed=total, large=large)
    consumed = [
        consume_partition(cluster.bootstrap, TOPIC, partition, count)
        for partition, count in enumerate(counts)
    ]
    return Filled(cluster.bootstrap, consumed)


def check_rows(found: pa.Table, expected: pa.Table) -> None:
    """Rows of one partition, in whatever order they came."""
    found = found.select(SCHEMA.names).sort_by("offset").cast(SCHEMA)
    assert found.num_rows == expected.num_rows
    for name in SCHEMA.names:
        assert found[name].combine_chunks().equals(expected[name].combine_chunks()), name


def random_ranges(chance: random.Random, whole: Ranges) -> Ranges:
    """Of some partitions; a size is as likely to be near 10 as near 10,000; some are empty."""
    ranges = {}
    for partition in chance.sample(sorted(whole), chance.randrange(1, len(whole) + 1)):
        _, count = whole[partition]
        size = min(int(RANGE_RECORDS_MAX ** chance.uniform(-0.05, 1)), count)
        start = chance.randrange(count - size + 1)
        ranges[partition] = (start, start + size)
    return ranges


def check_whole(spark: SparkSession, filled: Filled, folder: Path) -> None:
    filled.load(spark, filled.whole).write.parquet(f"file://{folder}")
    assert pq.read_table(folder, columns=["topic"])["topic"].unique().to_pylist() == [TOPIC]
    for partition, expected in enumerate(filled.consumed):
        found = pq.read_table(folder, filters=[("partition", "=", partition)])
        check_rows(found, expected)


def check_random_ranges(spark: SparkSession, filled: Filled, queries: int) -> None:
    chance = random.Random(queries)
    for _ in range(queries):
        ranges = random_ranges(chance, filled.whole)
        splitting = chance.choice(
            [
                {},
                {"minPartitions": chance.randrange(1, 20)},
                {"maxRecordsPerPartition": chance.randrange(500, 20_000)},
            ]
        )
        found = filled.load(spark, ranges, **splitting).toArrow()
        assert found.num_rows == sum(end - start for start, end in ranges.values())
        for partition, (start, end) in ranges.items():
            rows = found.filter(pa.compute.field("partition") == partition)
            check_rows(rows, filled.consumed[partition].slice(start, end - start))


SMALL = pytest.param((60_000, 2_000), id="60-thousand")
LARGE = pytest.param((5_000_000, 20_000), id="5-million", marks=pytest.mark.slow)


@pytest.mark.parametrize("filled", [SMALL], indirect=True)
def test_d2_spark_reads_what_kafkas_client_consumes(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    check_whole(spark, filled, tmp_path / "out")
    check_random_ranges(spark, filled, queries=4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("filled", [LARGE], indirect=True)
def test_d2_five_million_records_and_fifty_ranges_are_equal(
    spark: SparkSession, filled: Filled, tmp_path: Path
) -> None:
    check_whole(spark, filled, tmp_path / "out")
    check_random_ranges(spark, filled, queries=50)
