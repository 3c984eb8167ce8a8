"""Measures Spark's queries by Quorate's source and by Spark's own Kafka source, each on its log.

Three ways to read the same rows, in turns that have the machine for themselves:
``format("quorate")`` from Quorate, and ``format("kafka")`` from Quorate and from Kafka. Three
brokers, one replica, ``local[2]``, 100-byte records of which no two are alike, in four partitions.
Each query runs once before it counts. Spark's connector and Kafka are those that Maven fetches;
without them Quorate's source is measured alone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench._support import Bench
from bench._yardstick import measure_yardstick
from bench.peers.kafka import announced, fetched_kafka
from bench.peers.processes import cpu_seconds
from bench.produce_matrix.systems import System, kafka, quorate
from bench.produce_matrix.workload import Workload
from bench.spark_reading.processes import CpuClock
from bench.spark_reading.topics import Topic
from quorate.spark.session import local_session
from tests.support.kafka_jars import NoKafka
from tests.support.spark_jars import connector_jars

ROWS: Final = Topic("rows", 100, partitions=4)
OURS: Final = "quorate"
SPARKS_OWN: Final = "kafka"

Load = Callable[[str], DataFrame]
"""Returns a DataFrame of the columns that are named, separated by commas."""

QUERIES: Final[Mapping[str, Callable[[Load], object]]] = {
    "count()": lambda load: load("offset").count(),
    "sum(length(value)), max(offset)": lambda load: (
        load("value, offset").agg(F.sum(F.length("value")), F.max("offset")).collect()
    ),
    "sum(length(value))": lambda load: load("value").agg(F.sum(F.length("value"))).collect(),
    "distinct values": lambda load: load("value").distinct().count(),
    "first row": lambda load: load("value").limit(1).collect(),
}
_TYPES: Final = {"value": "value binary", "offset": "offset bigint"}


def loader(spark: SparkSession, bootstrap: str, source: str) -> Load:
    """Return the function that loads columns of the topic by a source.

    Quorate's source is told the columns by its schema, as it wants to be; Spark's own is asked for
    them by a projection, of which it learns in the plan.
    """
    reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", ROWS.name)

    def load(columns: str) -> DataFrame:
        names = columns.split(", ")
        if source == OURS:
            return reader.schema(", ".join(_TYPES[name] for name in names)).load()
        return reader.load().select(*names)

    return load


def measure(bench: Bench, system: System, sources: Sequence[str], jars: str, rows: int) -> None:
    """Measure every query of one system, by each of the sources in turn."""
    print(f"\n{system.name}; {measure_yardstick().line()}", flush=True)
    system.create_topic(ROWS.name, Workload(partitions=ROWS.partitions, replicas=1))
    ROWS.fill(system.bootstrap, rows)
    spark = local_session("quorate-bench", settings={"spark.jars": jars})
    try:
        for name, query in QUERIES.items():
            for source in sources:
                run = partial(query, loader(spark, system.bootstrap, source))
                run()
                samples = bench.repeat(partial(timed, run, rows, system.pids))
                about = {"query": name, "source": source, "log": system.name}
                bench.row(about, samples)
    finally:
        spark.stop()


def timed(run: Callable[[], object], rows: int, servers: Sequence[int]) -> dict[str, float]:
    """Run a query; return its rate, its time, and the CPU time of Spark and of the servers."""
    spark, before = CpuClock({}), cpu_seconds(servers)
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    return {
        "Mrow/s": rows / seconds / 1e6,
        "s": seconds,
        "CPU s, Spark": sum(spark.elapsed().values()),
        "CPU s, servers": cpu_seconds(servers) - before,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Spark sources", "3 brokers, RF 1, local[2]; queries over 100-byte records", arguments
    )
    rows = bench.pick(full=5_000_000, quick=400_000)
    try:
        jars, sources = ",".join(map(str, connector_jars())), [OURS, SPARKS_OWN]
    except NoKafka as missing:
        print(f"Spark's own Kafka source is left out: {missing}", flush=True)
        jars, sources = "", [OURS]
    with quorate("os") as system:
        measure(bench, system, sources, jars, rows)
    installation = announced(fetched_kafka, "Kafka is left out")
    if installation is not None and SPARKS_OWN in sources:
        with kafka(installation) as system:
            measure(bench, system, [SPARKS_OWN], jars, rows)
    bench.finish()


if __name__ == "__main__":
    main()
