"""Whole queries, planning included: Quorate, Parquet with the same rows, rows that are there
already, and row tuples."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Final, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench._support import Bench
from bench.spark_reading.comparisons import IdleSource, PrebuiltSource, RowTupleSource
from bench.spark_reading.processes import WORKERS, CpuClock, largest_rss_mb

QUORATE: Final = "Quorate"
PARQUET: Final = "Parquet"
PREBUILT: Final = "prebuilt"
TUPLES: Final = "tuples"
_PARTITIONS: Final = 4

Load = Callable[[str | None], DataFrame]
"""A DataFrame of the columns named, or of all."""
Query = Callable[[Load], object]


class Queries:
    """The queries, each on every source in turn, so that what disturbs one disturbs all."""

    def __init__(
        self,
        bench: Bench,
        spark: SparkSession,
        bootstrap: str,
        broker_pid: int,
        sizes: Mapping[str, int],
    ) -> None:
        """``sizes``: rows of the topics that the sources read, by source."""
        self._bench = bench
        self._spark = spark
        self._bootstrap = bootstrap
        self._others = {"broker": broker_pid}
        self._rows = sizes
        self._folder = Path(tempfile.mkdtemp(prefix="quorate-bench-"))
        spark.dataSource.register(RowTupleSource)
        spark.dataSource.register(IdleSource)
        spark.dataSource.register(PrebuiltSource)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._folder)

    def compare(self, topic: str, topic_of_tuples: str) -> None:
        """A row for each query: millions of rows per second, and what ours costs of CPU time."""
        load = self._load("quorate", topic)
        load(None).write.parquet(self._path("rows"))
        sources: dict[str, Load] = {
            QUORATE: load,
            PARQUET: lambda schema: _project(self._spark.read.parquet(self._path("rows")), schema),
            PREBUILT: self._load(PREBUILT, topic),
            TUPLES: self._load("row-tuples", topic_of_tuples),
        }
        queries: dict[str, Query] = {
            "count()": lambda load: load(None).count(),
            "count(), schema('offset bigint')": lambda load: load("offset bigint").count(),
            "sum(length(value)), max(offset)": lambda load: (
                load(None).agg(F.sum(F.length("value")), F.max("offset")).collect()
            ),
            "sum(length(value)), schema('value binary')": lambda load: (
                load("value binary").agg(F.sum(F.length("value"))).collect()
            ),
            "→ Parquet": lambda load: load(None).write.mode("overwrite").parquet(self._path("out")),
        }
        for run in sources.values():
            run(None).limit(1).collect()
        for name, query in queries.items():
            self._bench.row({"case": name}, self._compare(query, sources))

    def first_row(self, topic: str) -> None:
        """A row with the seconds to the first row, by a DataFrame that is new each time."""
        load = self._load("quorate", topic)
        seconds = [_seconds(lambda: load(None).limit(1).collect()) for _ in range(6)][1:]
        figures = {"median s": median(seconds), "worst s": max(seconds)}
        self._bench.row({"case": "first row, from the second query on"}, figures)

    def memory(self, topics: Mapping[str, str]) -> None:
        """A row for each topic, by what its partition is: the largest Python worker reading it."""
        with largest_rss_mb() as spark_alone:
            for _ in range(5):
                self._spark.read.format("idle").load().collect()
        for name, topic in topics.items():
            load = self._load("quorate", topic)
            with largest_rss_mb() as reading:
                load(None).agg(F.sum(F.length("value"))).collect()
            figures = {
                "worker RSS MB": reading[WORKERS],
                "above Spark's own MB": reading[WORKERS] - spark_alone[WORKERS],
            }
            self._bench.row({"case": f"reading {name}"}, figures)

    def _compare(self, query: Query, sources: Mapping[str, Load]) -> dict[str, float]:
        samples: list[dict[str, float]] = []
        for _ in range(self._bench.repetitions):
            figures: dict[str, float] = {}
            for source, load in sources.items():
                clock = CpuClock(self._others)
                seconds = _seconds(lambda load=load: query(load))  # type: ignore[misc]
                figures[_column(source)] = self._rows[source] / seconds / 1e6
                if source == QUORATE:
                    cpu_seconds = clock.elapsed()
            for other in (PARQUET, PREBUILT):
                figures[f"of {other}"] = figures[_column(QUORATE)] / figures[_column(other)]
            figures |= cpu_seconds
            samples.append(figures)
        return {name: median(sample[name] for sample in samples) for name in samples[0]}

    def _load(self, source: str, topic: str) -> Load:
        options = {"kafka.bootstrap.servers": self._bootstrap, "subscribe": topic}
        if source == PREBUILT:
            options = {"rows": str(self._rows[PREBUILT]), "partitions": str(_PARTITIONS)}

        def load(schema: str | None) -> DataFrame:
            reader = self._spark.read.format(source).options(**options)
            return (reader.schema(schema) if schema else reader).load()

        return load

    def _path(self, name: str) -> str:
        return f"file://{self._folder}/{name}"


def _column(source: str) -> str:
    return "Mrow/s" if source == QUORATE else f"{source} Mrow/s"


def _project(rows: DataFrame, schema: str | None) -> DataFrame:
    return rows.select(schema.split()[0]) if schema else rows


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
