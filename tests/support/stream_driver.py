"""A Spark driver that streams a topic until it is killed: `python -m tests.support.stream_driver`.

Two queries over the same topic: one into the file sink, one into ``foreachBatch``, which notes what
each batch held. Started again over the same folder they go on where they were.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from quorate.spark.session import local_session

OF_SPARK = ("Python worker failed to connect back", "java.io.OptionalDataException")
"""Failures of Spark's own, which a cluster's task retries hide and local mode does not have: a busy
machine was too slow to start a process; two queries' tasks were serialised at the same moment."""
OFFSETS_PER_BATCH = 500
OFFSETS_PER_BATCH_TO_THE_END = 50_000
COLUMNS = ("partition", "offset", "key")
CHECKPOINTS = ("files-checkpoint", "batches-checkpoint")

SETTINGS = {"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false"}
"""Killed while it writes a query's first offsets, Spark takes what it left for another query's."""

Batches = dict[int, list[Counter[tuple[int, int]]]]
"""Batch id → what each attempt held: how often each (partition, offset)."""


class StreamDriver:
    """The driver in a process group of its own; a context manager that leaves nothing behind."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, *, to_the_end: bool) -> None:
        self._log = folder / "driver.log"
        command = [sys.executable, "-m", "tests.support.stream_driver", bootstrap, topic, folder]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*map(str, command), *(["--to-the-end"] if to_the_end else [])],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def check_alive(self) -> None:
        assert self._process.poll() is None, f"the driver ended:\n{self._log.read_text()}"

    def wait_until_done(self, timeout_s: float) -> None:
        assert self._process.wait(timeout_s) == 0, self._log.read_text()

    def kill(self) -> None:
        """SIGKILL for Python and its JVM at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def read_files(folder: Path) -> list[tuple[int, int, bytes]]:
    """Partition, offset and key of every row that the file sink has committed, at the end."""
    table = pq.read_table(folder / "committed")
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def read_batches(folder: Path) -> Batches:
    """Return the batches that ``foreachBatch`` was given."""
    batches: Batches = {}
    for line in (folder / "batches.jsonl").read_text().splitlines():
        batch_id, places = json.loads(line)
        batches.setdefault(batch_id, []).append(Counter((p, n) for p, n in places))
    return batches


def _queries(spark: SparkSession, arguments: argparse.Namespace) -> list[DataStreamWriter]:
    folder: Path = arguments.folder
    note = folder / "batches.jsonl"
    at_most = OFFSETS_PER_BATCH_TO_THE_END if arguments.to_the_end else OFFSETS_PER_BATCH

    def stream(start: str) -> DataFrame:
        return (
            spark.readStream.format("quorate")
            .option("kafka.bootstrap.servers", arguments.bootstrap)
            .option("subscribe", arguments.topic)
            .option("startingOffsets", start)
            .option("maxOffsetsPerTrigger", at_most)
            .load()
        )

    def take(batch: DataFrame, batch_id: int) -> None:
        places = [[row.partition, row.offset] for row in batch.collect()]
        with note.open("a") as file:
            file.write(json.dumps([batch_id, places]) + "\n")

    files = (
        stream("earliest").writeStream.format("parquet").option("path", f"file://{folder}/files")
    )
    batches = stream("latest-100").select("partition", "offset").writeStream.foreachBatch(take)
    return [
        writer.option("checkpointLocation", f"file://{folder}/{name}")
        for name, writer in zip(CHECKPOINTS, (files, batches), strict=True)
    ]


def _run(query: DataStreamWriter) -> None:
    """Run the query until it ends; start it once more where Spark itself failed."""
    while True:
        try:
            query.start().awaitTermination()
        except StreamingQueryException as error:
            if not any(failure in str(error) for failure in OF_SPARK):
                raise
        else:
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--to-the-end", action="store_true")
    arguments = parser.parse_args()
    spark = local_session("stream-driver", settings=SETTINGS)
    trigger = {"availableNow": True} if arguments.to_the_end else {"processingTime": "0 seconds"}
    with ThreadPoolExecutor() as pool:
        queries = _queries(spark, arguments)
        for running in [pool.submit(_run, query.trigger(**trigger)) for query in queries]:
            running.result()
    # Spark alone knows which of the sink's files count.
    committed = spark.read.parquet(f"file://{arguments.folder}/files").select(*COLUMNS)
    committed.write.parquet(f"file://{arguments.folder}/committed")


if __name__ == "__main__":
    main()
