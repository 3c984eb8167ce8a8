"""A real Spark takes the records of a share group, and accepts them (KIP-932)."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from quorate.client.results import NewTopic
from quorate.client.security import ClientSecurity
from quorate.client.share_groups import ShareGroups
from quorate.testing import running_cluster
from tests.queues.campaign import begin_at_the_earliest
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def test_kip_932_a_query_takes_what_a_share_group_has(spark: SparkSession, tmp_path: Path) -> None:
    with running_cluster() as cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(name="jobs", num_partitions=2)])[0].raise_for_error()
        begin_at_the_earliest(cluster.bootstrap, "workers")
        groups = ShareGroups(cluster.bootstrap, ClientSecurity(), 30_000)
        seen: list[str] = []
        for begin in (0, 100):  # The second query goes on from the checkpoint of the first.
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            for number in range(begin, begin + 100):
                producer.produce("jobs", str(number).encode())
            assert producer.flush(30) == 0
            query = (
                spark.readStream.format("quorate")
                .option("kafka.bootstrap.servers", cluster.bootstrap)
                .option("subscribe", "jobs")
                .option("shareGroup", "workers")
                .load()
                .selectExpr("cast(value as string) as value")
                .writeStream.foreachBatch(
                    lambda rows, _: seen.extend(row.value for row in rows.collect())
                )
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            wait_until(
                lambda expected=begin + 100: len(set(seen)) == expected,  # type: ignore[misc]
                lambda: f"all of them: {len(seen)} came",
            )
            wait_until(
                lambda: all(one.lag == 0 for one in groups.offsets("workers")),
                lambda: f"all is accepted: {groups.offsets('workers')}",
            )
            query.stop()
        assert sorted(map(int, seen)) == list(range(200))
