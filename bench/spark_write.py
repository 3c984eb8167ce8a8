"""Measures how fast Spark writes a topic: beside confluent-kafka and a loop over rows in Python.

100-byte records to topics of one and of three replicas, acks=all, ``local[2]``, three brokers. The
encoder and the writer are measured without Spark, too, so that a slow row says where it is slow.
Brokers, JVM and Python workers share this machine's cores: on two of them, CPU time is what limits
a write, and the columns with CPU seconds say whose.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from bench._support import Bench
from bench.spark_reading.processes import CpuClock
from quorate.client.results import NewTopic
from quorate.spark.options.connection_options import ConnectionOptions
from quorate.spark.session import local_session
from quorate.spark.writing.batch_builder import BatchBuilder, BatchSettings
from quorate.spark.writing.partitioner import Partitioner, TargetTopic
from quorate.spark.writing.row_columns import rows_of
from quorate.spark.writing.write_options import WriteOptions
from quorate.spark.writing.write_task import write_rows
from quorate.testing import RunningCluster, running_cluster

PARTITIONS: Final = 12
TASKS: Final = 4
VALUE_BYTES: Final = 100
KEY_BYTES: Final = 16
BATCH_ROWS: Final = 10_000
"""The number of rows in an Arrow batch as Spark cuts it."""
REPLICAS: Final = (1, 3)


def arrow_rows(count: int, key_bytes: int) -> list[pa.RecordBatch]:
    """Batches of rows in memory; values are half random."""
    random = np.random.default_rng(1)

    def column(size: int) -> pa.Array:
        data = random.integers(0, 256, (BATCH_ROWS, size), np.uint8)
        data[:, size // 2 :] = ord("-")
        ends = pa.array(np.arange(BATCH_ROWS + 1, dtype=np.int32) * size)
        buffers = [None, ends.buffers()[1], pa.py_buffer(data.tobytes())]
        return pa.Array.from_buffers(pa.binary(), BATCH_ROWS, buffers)

    columns = {"value": column(VALUE_BYTES)}
    if key_bytes:
        columns["key"] = column(key_bytes)
    return [pa.record_batch(columns)] * (count // BATCH_ROWS)


def encode(batches: Sequence[pa.RecordBatch], codec: str) -> dict[str, float]:
    """Rows to batches that are thrown away, in one thread."""
    topic = TargetTopic(b"id", PARTITIONS, 1 << 20)
    partitioner = Partitioner(lambda name: topic, "t", 0)
    builder = BatchBuilder(partitioner.targets, BatchSettings(1, 0, codec, 512 << 10))
    started, rows, size = time.process_time(), 0, 0
    for batch in batches:
        for part in partitioner.split(given := rows_of(batch, topic_column=False, now_ms=0)):
            size += sum(closed.size for closed in builder.append(given, part))
        rows += batch.num_rows
    seconds = time.process_time() - started
    return {"Mrow/s": rows / seconds / 1e6, "GB/s": size / seconds / 1e9}


def measure_encoder(bench: Bench, rows: int) -> None:
    """Measure the encoder in CPU time, which is what one thread does when nobody is in its way."""
    for key_bytes in (0, KEY_BYTES):
        batches = arrow_rows(rows, key_bytes)
        for codec in ("none", "lz4", "zstd"):
            case = {"case": f"encoder alone, {key_bytes}-byte keys, {codec}"}
            bench.row(case, bench.repeat(lambda b=batches, c=codec: encode(b, c)))  # type: ignore[misc]


class Writes:
    """Ways to write the same rows to a topic."""

    def __init__(self, bench: Bench, cluster: RunningCluster, rows: int) -> None:
        self._bench = bench
        self._cluster = cluster
        self._rows = rows
        self._topics = 0

    def without_spark(self, replicas: int) -> None:
        """One task in this process."""
        batches = arrow_rows(self._rows, 0)

        def write(topic: str) -> None:
            options = WriteOptions(ConnectionOptions(self._cluster.bootstrap), topic)
            if write_rows(options, iter(batches), task=0) != self._rows:
                raise RuntimeError("not every row was written")

        self._measure("one task without Spark", replicas, write)

    def by_spark(self, spark: SparkSession, replicas: int) -> None:
        """Ours, a producer in ``foreachPartition``, and rows that nobody writes."""
        bootstrap = self._cluster.bootstrap

        def ours(topic: str) -> None:
            writer = self._frame(spark).write.format("quorate").mode("append")
            writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()

        def confluent(topic: str) -> None:
            self._frame(spark).foreachPartition(lambda rows: produce(bootstrap, topic, rows))

        self._once(replicas, ours)  # Workers start, and load what is compiled.
        self._measure("df.write.format('quorate')", replicas, ours)
        self._measure("confluent-kafka in foreachPartition", replicas, confluent)

    def by_nobody(self, spark: SparkSession) -> None:
        """Measure what the rows cost before anybody writes them."""
        frame = self._frame(spark)
        noop = frame.write.format("noop").mode("overwrite")
        self._measure("rows made, not written", 0, lambda topic: noop.save())
        self._measure("a Python loop over rows", 0, lambda topic: frame.foreachPartition(look_at))

    def _frame(self, spark: SparkSession) -> DataFrame:
        made = f"cast(rpad(cast(id as string), {VALUE_BYTES}, '-') as binary) value"
        return spark.range(0, self._rows, 1, TASKS).selectExpr(made)

    def _measure(self, name: str, replicas: int, write: Callable[[str], object]) -> None:
        case = {"case": f"{name}, RF {replicas}" if replicas else name}
        self._bench.row(case, self._bench.repeat(lambda: self._once(replicas, write)))

    def _once(self, replicas: int, write: Callable[[str], object]) -> dict[str, float]:
        self._topics += 1
        topic = f"written-{self._topics}"
        if replicas:
            create(self._cluster, topic, replicas)
        pids = {id_: self._cluster.broker_pid(id_) for id_ in self._cluster.broker_ids}
        clock = CpuClock({f"broker {id_}": pid for id_, pid in pids.items() if pid})
        started = time.perf_counter()
        write(topic)
        seconds = time.perf_counter() - started
        if replicas:
            with self._cluster.admin() as admin:
                admin.delete_topics([topic])
        return {"Mrow/s": self._rows / seconds / 1e6, **clock.elapsed()}


def create(cluster: RunningCluster, name: str, replicas: int) -> None:
    """An empty topic."""
    with cluster.admin() as admin:
        topic = NewTopic(name=name, num_partitions=PARTITIONS, replication_factor=replicas)
        admin.create_topics([topic])[0].raise_for_error()


def produce(bootstrap: str, topic: str, rows: Iterator[Row]) -> None:
    """Produce the rows one by one, as most programs without a sink do."""
    from confluent_kafka import Producer  # By name: the executors cannot unpickle the class.

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 50,
            "batch.size": 512 << 10,
            "queue.buffering.max.messages": 200_000,
        }
    )
    for row in rows:
        while True:
            try:
                producer.produce(topic, bytes(row.value))
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} records were not acknowledged")


def look_at(rows: Iterator[Row]) -> None:
    """Every row as Python sees it."""
    for row in rows:
        len(row.value)


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Spark write", "100-byte records, acks=all, 3 brokers, 12 partitions, local[2]", arguments
    )
    rows = bench.pick(full=2_000_000, quick=200_000)
    measure_encoder(bench, rows)
    with running_cluster(brokers=3, config={"log.flush": "os"}) as cluster:
        writes = Writes(bench, cluster, rows)
        for replicas in REPLICAS:
            writes.without_spark(replicas)
        spark = local_session("quorate-bench")
        try:
            writes.by_nobody(spark)
            for replicas in REPLICAS:
                writes.by_spark(spark, replicas)
        finally:
            spark.stop()
    bench.finish()


if __name__ == "__main__":
    main()
