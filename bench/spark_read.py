"""How fast Spark reads a topic: 100-byte records, uncompressed, one broker, ``local[2]``.

The decoder and the stream are measured alone too, so that a slow row says where it is slow. Broker,
JVM and Python workers share this machine's cores.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bench._support import Bench
from quorate.client.results import NewTopic
from quorate.spark.cluster import ClusterClient
from quorate.spark.decoding.arrow_columns import ArrowDecoder
from quorate.spark.ranges import TopicPartition
from quorate.spark.reading.frames import split_frame
from quorate.spark.retries import Retries
from quorate.spark.schema import source_schema
from quorate.spark.session import local_session
from quorate.testing import running_cluster
from quorate_proto.v1.replication_pb2 import RangeReadRequest

TOPIC = "rows"
PARTITIONS = 4
VALUE_BYTES = 100
FRAME_BYTES = 1 << 20


def produce(bootstrap: str, rows: int) -> None:
    """``rows`` records over all partitions, in batches of up to 1 MiB."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 0,
        }
    )
    value = bytes(VALUE_BYTES)
    for row in range(rows):
        producer.produce(TOPIC, value, partition=row % PARTITIONS)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} of {rows} records were not acknowledged")


def rate(rows: int, run: Callable[[], object]) -> dict[str, float]:
    """Millions of rows per second."""
    started = time.perf_counter()
    run()
    return {"Mrow/s": rows / (time.perf_counter() - started) / 1e6}


class Stream:
    """One partition read without Spark, in this process."""

    def __init__(self, cluster: ClusterClient, rows: int) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(TOPIC, 0)
        self._rows = rows
        cluster.refresh([self._partition])

    def receive(self) -> None:
        for _ in self._frames():
            pass

    def decoding(self, schema: StructType) -> Callable[[], None]:
        """Decodes all frames of the partition, which are in memory already."""
        frames = [split_frame(frame)[1] for frame in self._frames()]
        arrow_schema = to_arrow_schema(schema, timezone="UTC")

        def decode() -> None:
            decoder = ArrowDecoder(self._partition, 0, self._rows, arrow_schema)
            found = sum(batch.num_rows for frame in frames for batch in decoder.decode(frame))
            if found != self._rows:
                raise RuntimeError(f"decoded {found} of {self._rows} rows")

        decode()
        return decode

    def _frames(self) -> Iterator[bytes]:
        leader = self._cluster.leader_of(self._partition)
        if leader is None:
            raise RuntimeError(f"{self._partition} has no leader")
        request = RangeReadRequest(
            topic=TOPIC, start_offset=0, end_offset=self._rows, max_frame_bytes=FRAME_BYTES
        )
        return iter(self._cluster.open_range(leader, request))


def measure_stream(bench: Bench, bootstrap: str, rows: int) -> None:
    """One thread, one partition."""
    with ClusterClient(bootstrap, lambda: Retries(10, 100)) as cluster:
        stream = Stream(cluster, rows)
        every = source_schema(include_headers=False)
        offset = StructType([every["offset"]])
        cases = {
            "frames over gRPC, not decoded": stream.receive,
            "decoder alone, all columns": stream.decoding(every),
            "decoder alone, offset only": stream.decoding(offset),
        }
        for name, run in cases.items():
            bench.row({"case": name}, bench.repeat(lambda run=run: rate(rows, run)))  # type: ignore[misc]


def measure_spark(bench: Bench, spark: SparkSession, bootstrap: str, rows: int) -> None:
    """Whole queries, planning included."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
    folder = Path(tempfile.mkdtemp(prefix="quorate-bench-"))

    def load(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("quorate").options(**options)
        return (reader.schema(schema) if schema else reader).load()

    def to_parquet() -> None:
        load().write.mode("overwrite").parquet(f"file://{folder}/out")

    cases: dict[str, Callable[[], object]] = {
        "count": lambda: load().count(),
        "count, schema('offset bigint')": lambda: load("offset bigint").count(),
        "sum(length(value)), max(offset)": lambda: (
            load().agg(F.sum(F.length("value")), F.max("offset")).collect()
        ),
        "to Parquet": to_parquet,
    }
    try:
        load().count()
        for name, run in cases.items():
            bench.row({"case": name}, bench.repeat(lambda run=run: rate(rows, run)))  # type: ignore[misc]
    finally:
        shutil.rmtree(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Spark read", f"{VALUE_BYTES}-byte records, 1 broker, local[2]", arguments
    )
    rows = bench.pick(full=4_000_000, quick=400_000)
    with running_cluster(config={"log.flush": "os"}) as cluster:
        with cluster.admin() as admin:
            topic = NewTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
            admin.create_topics([topic])[0].raise_for_error()
        produce(cluster.bootstrap, rows)
        measure_stream(bench, cluster.bootstrap, rows // PARTITIONS)
        spark = local_session("quorate-bench")
        try:
            measure_spark(bench, spark, cluster.bootstrap, rows)
        finally:
            spark.stop()
    bench.finish()


if __name__ == "__main__":
    main()
