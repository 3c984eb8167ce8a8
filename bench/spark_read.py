"""Measures how fast Spark reads a topic: beside Parquet with the same rows, beside rows that a
Python source has at hand, which is the most that one can reach, and beside a tuple per row.

One broker, ``local[2]``. The decoder and the stream are measured alone too, so that a slow row says
where it is slow. Broker, JVM and Python workers share this machine's cores: on two of them, CPU
time is what limits a query, and the columns with CPU seconds say whose.
"""

import time
from collections.abc import Sequence

from bench._support import Bench
from bench.spark_reading.decoder import measure_decoder
from bench.spark_reading.queries import PARQUET, PREBUILT, QUORATE, TUPLES, Queries
from bench.spark_reading.topics import Topic, frames
from quorate.spark.session import local_session
from quorate.testing import RunningCluster, running_cluster

ROWS = Topic("rows", 100, partitions=4)
TUPLE_ROWS = Topic("tuple-rows", 100, partitions=4)
"""Fewer rows: a tuple per row takes its time."""
LONG = Topic("long-partition", 1000)
SHORT = Topic("short-partition", 1000)
MEGABYTE_ROWS = 1000
"""Rows of these two topics that make a megabyte."""


def receive(bootstrap: str, rows: int) -> dict[str, float]:
    """Frames of one partition over gRPC, thrown away: what the stream alone can carry."""
    started = time.perf_counter()
    size = sum(map(len, frames(bootstrap, ROWS, rows)))
    seconds = time.perf_counter() - started
    return {"Mrow/s": rows / seconds / 1e6, "GB/s": size / seconds / 1e9}


def measure_queries(bench: Bench, cluster: RunningCluster, rows: int) -> None:
    """Measure everything that needs a Spark session."""
    tuple_rows = bench.pick(full=500_000, quick=100_000)
    TUPLE_ROWS.create(cluster.bootstrap, tuple_rows)
    short_mb, long_mb = bench.pick(full=(64, 2048), quick=(16, 128))
    SHORT.create(cluster.bootstrap, short_mb * MEGABYTE_ROWS)
    LONG.create(cluster.bootstrap, long_mb * MEGABYTE_ROWS)
    broker_pid = cluster.broker_pid(cluster.broker_ids[0])
    if broker_pid is None:
        raise RuntimeError("the broker is not running")
    sizes = {QUORATE: rows, PARQUET: rows, PREBUILT: rows, TUPLES: tuple_rows}
    spark = local_session("quorate-bench")
    try:
        with Queries(bench, spark, cluster.bootstrap, broker_pid, sizes) as queries:
            queries.memory(
                {
                    f"a partition of {short_mb} MB": SHORT.name,
                    f"a partition of {long_mb} MB": LONG.name,
                }
            )
            queries.compare(ROWS.name, TUPLE_ROWS.name)
            queries.first_row(ROWS.name)
    finally:
        spark.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Spark read", "1 broker, local[2]; queries over 100-byte records", arguments
    )
    rows = bench.pick(full=5_000_000, quick=400_000)
    with running_cluster(config={"log.flush": "os"}) as cluster:
        measure_decoder(bench, cluster.bootstrap)
        ROWS.create(cluster.bootstrap, rows)
        of_partition = rows // ROWS.partitions
        case = {"case": "frames over gRPC, not decoded"}
        bench.row(case, bench.repeat(lambda: receive(cluster.bootstrap, of_partition)))
        measure_queries(bench, cluster, rows)
    bench.finish()


if __name__ == "__main__":
    main()
