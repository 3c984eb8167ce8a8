"""Measures how fast a topic becomes an Iceberg or a Delta table, and how old rows are by then.

One broker, 100-byte records of which no two are alike. The table service's own reader and writer
are compared with Spark's write of the same rows as Parquet, all on this machine's cores. Latency is
from the call of ``produce`` until the commits of table and quorum are made.
"""

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from bench._support import Bench, percentile
from bench.spark_reading.topics import Topic
from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_config import parse_config
from quorate.pipeline.pipeline_planner import PipelinePlanner
from quorate.pipeline.run_progress import RunProgress
from quorate.pipeline.run_setup import run_in_charge
from quorate.tables.local_rows import LocalRows
from quorate.tables.open_table import open_table
from quorate.tables.table_runner import TableRunner
from quorate.testing import running_cluster

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

FORMATS = ("iceberg", "delta")
ROWS = Topic("rows", 100, partitions=4)
RATE = 10_000
INTERVALS_MS = (200, 1_000)
THREADS = 2


@contextmanager
def table_run(
    bootstrap: str, topic: str, format_: str, folder: Path, name: str
) -> Iterator[tuple[TableRunner, PipelinePlanner]]:
    """A run of a new pipeline into a new table."""
    config = parse_config(
        {
            "name": name,
            "source.kafka.bootstrap.servers": bootstrap,
            "source.subscribe": topic,
            "sink.format": format_,
            "sink.path": str(folder / name),
            "sink.table": name.replace("-", "_"),
        }
    )
    assert config.table is not None
    with closing(LocalRows(config.reading, THREADS)) as rows:
        table = open_table(config.table, name, rows.schema)
        with run_in_charge(config, table.sink, rows.cancel) as (charge, planner):
            run = TableRunner(
                charge, table=table, planner=planner, rows=rows, progress=RunProgress()
            )
            run.prepare(time.time_ns() // 1_000_000)
            yield run, planner


def fill(bootstrap: str, format_: str, folder: Path, rows: int, name: str) -> dict[str, float]:
    """Millions of rows per second from topic to table, from a run that has begun."""
    with table_run(bootstrap, ROWS.name, format_, folder, name) as (run, _):
        started, cpu = time.perf_counter(), time.process_time()
        run.work()
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    assert run.summary.rows == rows
    return {"Mrow/s": rows / seconds / 1e6, "CPU s of the writer": cpu_seconds}


def spark_parquet(bootstrap: str, folder: Path, rows: int, repetitions: int) -> list[float]:
    """Millions of rows per second of Spark's own write to Parquet, without the first one."""
    from quorate.spark.session import local_session

    spark = local_session("quorate-bench")
    found = []
    try:
        for _ in range(repetitions + 1):
            frame = (
                spark.read.format("quorate")
                .option("kafka.bootstrap.servers", bootstrap)
                .option("subscribe", ROWS.name)
                .load()
            )
            started = time.perf_counter()
            frame.write.mode("overwrite").option("compression", "zstd").parquet(
                f"file://{folder}/spark"
            )
            found.append(rows / (time.perf_counter() - started) / 1e6)
    finally:
        spark.stop()
    return found[1:]


class PacedProducer:
    """Produces at an even pace in a thread, and notes when each offset was produced."""

    def __init__(self, bootstrap: str, topic: str, seconds: float) -> None:
        self.produced: dict[TopicPartition, dict[int, float]] = {}
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._seconds = seconds
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        begin = time.monotonic()
        for number in range(int(self._seconds * RATE)):
            if number % 100 == 0:
                while (left_s := begin + number / RATE - time.monotonic()) > 0:
                    self._producer.poll(left_s)
            self._producer.produce(
                self._topic, b"%0100d" % number, on_delivery=self._noted(time.monotonic())
            )
        self._producer.flush(60)

    def _noted(self, at_s: float):  # type: ignore[no-untyped-def]  # noqa: ANN202
        def note(error: "KafkaError | None", message: "Message") -> None:
            partition, offset = message.partition(), message.offset()
            assert error is None
            assert partition is not None
            assert offset is not None
            self.produced.setdefault(TopicPartition(self._topic, partition), {})[offset] = at_s

        return note


def latency(
    bootstrap: str, format_: str, folder: Path, interval_ms: int, seconds: float, topic: str
) -> dict[str, float]:
    """Seconds from `produce` until the row is committed, at a steady rate."""
    Topic(topic, 100, partitions=4).create(bootstrap, 0)
    visible: dict[TopicPartition, list[tuple[int, float]]] = {}
    with table_run(bootstrap, topic, format_, folder, topic) as (run, planner):
        producer = PacedProducer(bootstrap, topic, seconds)
        while True:
            began, was_done = time.monotonic(), producer.is_done
            planner.look_again()
            run.work()
            now = time.monotonic()
            for partition, mark in run.position.marks.items():
                visible.setdefault(partition, []).append((mark.offset, now))
            if was_done:
                break
            time.sleep(max(interval_ms / 1000 - (now - began), 0.0))
    found = []
    for partition, times in producer.produced.items():
        rounds = iter(visible[partition])
        end, at_s = next(rounds)
        for offset, produced_s in sorted(times.items()):
            while offset >= end:
                end, at_s = next(rounds)
            found.append(at_s - produced_s)
    assert len(found) == int(seconds * RATE)
    return {
        "p50 s": percentile(found, 0.5),
        "p99 s": percentile(found, 0.99),
        "worst s": max(found),
        "commits": float(run.summary.batches),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Tables", "1 broker; 100-byte records into Iceberg and Delta tables", arguments
    )
    rows = bench.pick(full=4_000_000, quick=2_000_000)
    seconds = bench.pick(full=15.0, quick=8.0)
    with (
        tempfile.TemporaryDirectory(prefix="quorate-bench-") as name,
        running_cluster(config={"log.flush": "os"}) as cluster,
    ):
        folder, bootstrap = Path(name), cluster.bootstrap
        ROWS.create(bootstrap, rows)
        fill(bootstrap, "delta", folder, rows, "first")
        number = iter(range(1_000))
        for format_ in FORMATS:
            samples = bench.repeat(
                lambda format_=format_: fill(  # type: ignore[misc]
                    bootstrap, format_, folder, rows, f"{format_}-{next(number)}"
                )
            )
            bench.row({"case": f"topic → {format_}"}, samples)
        speeds = spark_parquet(bootstrap, folder, rows, bench.repetitions)
        bench.row({"case": "Spark: topic → Parquet"}, {"Mrow/s": median(speeds)})
        for format_ in FORMATS:
            for interval_ms in INTERVALS_MS:
                topic = f"paced-{format_}-{interval_ms}"
                figures = latency(bootstrap, format_, folder, interval_ms, seconds, topic)
                case = f"{RATE:,} records/s → {format_}, a commit every {interval_ms} ms"
                bench.row({"case": case}, figures)
    bench.finish()


if __name__ == "__main__":
    main()
