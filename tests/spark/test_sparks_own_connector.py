"""Spark's own Kafka connector, unmodified, reads and writes at a cluster of Quorate."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.client.results import NewTopic
from quorate.testing import running_cluster
from tests.support.kafka_jars import NoKafka
from tests.support.spark_jars import connector_jars

PROGRAM = Path(__file__).parent / "programs" / "own_connector.py"

pytestmark = [
    pytest.mark.slow, pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)
]  # fmt: skip


def test_batches_and_streams_of_sparks_connector(tmp_path: Path) -> None:
    try:
        jars = connector_jars()
    except NoKafka as missing:
        pytest.skip(str(missing))
    with running_cluster() as cluster:
        topics = [
            NewTopic(name=name, num_partitions=2, replication_factor=1) for name in ("t", "out")
        ]
        with cluster.admin() as admin:
            for created in admin.create_topics(topics):
                created.raise_for_error()
        done = subprocess.run(
            [sys.executable, PROGRAM, cluster.bootstrap, ",".join(map(str, jars)), tmp_path / "c"],
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batch"] == 1_000
    assert found["streamed"] == [1_000, 1_000]
    assert found["batches"] >= 3
