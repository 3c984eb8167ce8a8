"""A query whose leaders are lost in the middle of it: every record once, as if nothing had been."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.cluster.client_options import client_options_of
from quorate.testing import RunningCluster, running_cluster
from tests.support.gated_query import GatedQuery
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "held-up"
PARTITIONS = 2
RECORDS = 16_000
"""Of each partition. 32 MB of values: far more than all buffers on the way hold."""
VALUE_BYTES = 2_000
FILLER = random.Random(7).randbytes(1 << 20)

Loss = Callable[[RunningCluster, int], None]


def value_at(partition: int, offset: int) -> bytes:
    """Every value is another, and known without asking."""
    start = (offset * 31 + partition * 7) % (len(FILLER) - VALUE_BYTES)
    return b"%d/%08d/" % (partition, offset) + FILLER[start : start + VALUE_BYTES - 11]


def fill(cluster: RunningCluster, topic: str) -> None:
    """A topic with three replicas, every record acknowledged by all of them."""
    with cluster.admin() as admin:
        new = NewTopic(name=topic, num_partitions=PARTITIONS, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()
    wait_until_known(cluster, topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "max.in.flight": 1,
            "queue.buffering.max.messages": 0,
        }
    )
    for offset in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, value_at(partition, offset), partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, broker_session_timeout_ms=2_000) as running:
        fill(running, TOPIC)
        yield running


@pytest.fixture(autouse=True)
def _whole_again(cluster: RunningCluster) -> Iterator[None]:
    yield
    for broker_id in cluster.broker_ids:
        if cluster.broker_pid(broker_id) is None:
            cluster.restart_broker(broker_id)
        cluster.resume_broker(broker_id)
    wait_until_whole(cluster)


def load(spark: SparkSession, cluster: RunningCluster, **options: object) -> DataFrame:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC, **options}
    frame = spark.read.format("quorate").options(**{k: str(v) for k, v in given.items()}).load()
    return frame.select("partition", "offset", "value")


def leader_of(cluster: RunningCluster, partition: int, *, asked: int = 1) -> int:
    """As one broker knows it: others may hang."""
    address, options = cluster.broker_grpc_address(asked), client_options_of(cluster.folder)
    with AdminClient(grpc_addresses=[address], options=options) as admin:
        return admin.describe_topics([TOPIC])[0].partitions[partition].leader


def check_exact(found: pa.Table) -> None:
    """All records of all partitions, each once, each as it was produced."""
    assert found.num_rows == PARTITIONS * RECORDS
    found = found.sort_by([("partition", "ascending"), ("offset", "ascending")])
    for partition in range(PARTITIONS):
        rows = found.slice(partition * RECORDS, RECORDS)
        assert set(rows["partition"].to_pylist()) == {partition}
        assert rows["offset"].to_pylist() == list(range(RECORDS))
        expected = pa.array([value_at(partition, offset) for offset in range(RECORDS)], pa.binary())
        assert rows["value"].combine_chunks().equals(expected)


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(RunningCluster.kill_broker, id="killed"),
        pytest.param(RunningCluster.pause_broker, id="hanging", marks=pytest.mark.slow),
        pytest.param(RunningCluster.stop_broker, id="shut-down", marks=pytest.mark.slow),
    ],
)
def test_d2_c2_a_leader_lost_in_mid_read_costs_nothing(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path, lose: Loss
) -> None:
    with GatedQuery(load(spark, cluster), tmp_path / "gate") as query:
        query.wait_until_reached(0, 1)
        lost = leader_of(cluster, 0)
        lose(cluster, lost)
        query.open()
        check_exact(query.result())
    (asked, _) = set(cluster.broker_ids) - {lost}
    assert leader_of(cluster, 0, asked=asked) not in (lost, -1)


@pytest.mark.slow
def test_d2_c2_leaders_killed_all_the_time(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    """Small steps of the query, a leader killed before each: streams begin and break everywhere."""
    chance = random.Random(11)
    with GatedQuery(load(spark, cluster, maxRecordsPerPartition=4_000), tmp_path / "gate") as query:
        query.wait_until_reached(0)
        for _ in range(6):
            victim = chance.choice(cluster.broker_ids)
            cluster.kill_broker(victim)
            query.let_pass(chance.randrange(500, 5_000))
            cluster.restart_broker(victim)
            wait_until_whole(cluster)
        query.open()
        check_exact(query.result())


@pytest.mark.slow
@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_topic_deleted_in_mid_read_is_named(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path, fail_on_data_loss: bool
) -> None:
    topic = f"goes-away-{fail_on_data_loss}"
    fill(cluster, topic)
    frame = load(spark, cluster, subscribe=topic, failOnDataLoss=fail_on_data_loss)
    with GatedQuery(frame, tmp_path / "gate") as query, cluster.admin() as admin:
        query.wait_until_reached(0, 1)
        admin.delete_topics([topic])[0].raise_for_error()
        wait_until(
            lambda: topic not in {known.name for known in admin.describe_topics()},
            f"{topic} to be gone",
        )
        query.open()
        if fail_on_data_loss:
            with pytest.raises(
                PythonException, match=rf"{topic}-\d is no longer there .* read up to offset \d+"
            ):
                query.result()
        else:
            found = query.result().sort_by([("partition", "ascending"), ("offset", "ascending")])
            assert 0 < found.num_rows < PARTITIONS * RECORDS
            for partition in range(PARTITIONS):
                read = found.filter(pc.field("partition") == partition)["offset"].to_pylist()
                assert read == list(range(len(read))), "what is left, without gaps"
