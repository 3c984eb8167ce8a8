"""The process of a pipeline killed again and again: Parquet holds each offset exactly once."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer

from quorate.client.admin import AdminClient
from quorate.client.results import NewTopic
from quorate.testing import running_cluster
from tests.support.waiting import let_time_pass, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

KILLS = 20
PARTITIONS = 3
RECORDS_PER_ROUND = 3_000
START_TIMEOUT_S = 300
ALIVE_FOR_S_MAX = 6.0
"""After it has begun: time for several batches."""

FILE = """
name = "lake"
[source]
kafka.bootstrap.servers = "{bootstrap}"
subscribe = "t"
maxOffsetsPerTrigger = 700
[sink]
path = "{sink}"
"""


def test_a_process_killed_at_random_moments_leaves_neither_gaps_nor_duplicates(
    tmp_path: Path,
) -> None:
    check_kills(tmp_path, KILLS, random.Random(14))


def check_kills(folder: Path, kills: int, chance: random.Random) -> None:
    file, sink = folder / "lake.toml", folder / "sink"
    with running_cluster() as cluster, cluster.admin() as admin:
        admin.create_topics([NewTopic(name="t", num_partitions=PARTITIONS)])
        file.write_text(FILE.format(bootstrap=cluster.bootstrap, sink=sink))
        produced = 0
        for _ in range(kills):
            produced += produce(cluster.bootstrap)
            process = start(file, folder, "--take-over", "--continuous", "0.1")
            try:
                wait_until_it_has_begun(admin, process, folder)
                let_time_pass(chance.uniform(0, ALIVE_FOR_S_MAX), "a kill comes at any moment")
            finally:
                # The driver alone: its Java goes on for a moment, as a zombie.
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        last = start(file, folder, "--take-over")
        assert last.wait(START_TIMEOUT_S) == 0, (folder / "log").read_text()
        assert sorted(offsets_in(sink)) == [
            (number, offset)
            for number in range(PARTITIONS)
            for offset in range(produced // PARTITIONS)
        ]
        (pipeline,) = admin.describe_pipelines(["lake"])
        assert sum(pipeline.topics[0].offsets) == pipeline.rows == produced


def produce(bootstrap: str) -> int:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS_PER_ROUND):
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return RECORDS_PER_ROUND


def start(file: Path, folder: Path, *flags: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "quorate.cli.main", "pipeline", "run"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--config", str(file), "--master", "local[2]", *flags],
            stdout=log,
            stderr=log,
        )


def wait_until_it_has_begun(
    admin: AdminClient, process: "subprocess.Popen[bytes]", folder: Path
) -> None:
    def has_begun() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        pipelines = admin.describe_pipelines(["lake"])
        return any(f"process {process.pid} " in pipeline.owner for pipeline in pipelines)

    wait_until(
        has_begun,
        lambda: f"the pipeline to begin\n{(folder / 'log').read_text()}",
        timeout_s=START_TIMEOUT_S,
    )


def offsets_in(sink: Path) -> list[tuple[int, int]]:
    dataset: Any = ds.dataset(sink, format="parquet", partitioning="hive")
    table = dataset.to_table(columns=["partition", "offset"])
    found = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert Counter(found).most_common(1)[0][1] == 1, "an offset is there twice"
    return found
