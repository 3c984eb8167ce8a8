"""Reads the topic back with Spark, by offset range, and compares it with the acknowledgements."""

import json
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession


EXTENSION: Final = r"regexp_extract(cast(key AS string), '([^/]*?)(\\.[^./]*)?$', 2) AS extension"
"""The SQL expression for the extension of a record's file, which is the record's key."""


@dataclass(frozen=True)
class Readback:
    """The result of reading the topic back."""

    ranges: Mapping[int, tuple[int, int]]
    lines_by_extension: Mapping[str, int]
    found: int
    """The acknowledged records that were read."""
    lost: int
    """The acknowledged records that were not read."""
    extra: int
    """The records without an acknowledgement: copies that retries left behind."""


class BackgroundSpark:
    """A local Spark session that starts in the background, with its files in ``folder``.

    It is a context manager. At the end the session is stopped, and its JVM has ended.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="spark-start")
        self._starting = self._executor.submit(self._start)

    @property
    def session(self) -> "SparkSession":
        """The session, once it has started. Raises the error that kept it from starting."""
        return self._starting.result()

    def _start(self) -> "SparkSession":
        from quorate.spark.session import local_session

        self._folder.mkdir(parents=True)
        settings = {
            "spark.local.dir": str(self._folder),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={self._folder} -XX:-UsePerfData",
        }
        with _stderr_in(self._folder / "spark.log"):
            return local_session("quorate-demo", settings=settings)

    def __enter__(self) -> "BackgroundSpark":
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop the session. Its JVM ends when its standard input is closed."""
        if not self._starting.done():
            self._say("Spark is still starting; once it is up it can be stopped")
        self._executor.shutdown(wait=True)
        if self._starting.exception() is not None:
            return
        session = self._starting.result()
        gateway = session.sparkContext._gateway
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Redirect the standard error of child processes to a file, because a JVM prints five lines at
    its start."""
    own = os.dup(2)
    with path.open("ab") as log_file:
        os.dup2(log_file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def offset_ranges(bootstrap: str, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
    """Return the first and the next offset of each partition, from the brokers."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "quorate-demo", "log_level": 0}
    )
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            for number in range(partitions)
        }
    finally:
        consumer.close()


def read_back(
    session: "SparkSession",
    bootstrap: str,
    topic: str,
    ranges: Mapping[int, tuple[int, int]],
    acknowledged: Mapping[int, "array[int]"],
) -> Readback:
    """Read exactly those ranges with Spark, and compare the pairs of partition and offset."""
    loaded = _load(session, bootstrap, topic, ranges)
    records = loaded.selectExpr("partition", "offset", EXTENSION).cache()
    positions = records.select("partition", "offset").toArrow()
    found, lost, extra = compare(
        acknowledged, positions["partition"].to_numpy(), positions["offset"].to_numpy()
    )
    return Readback(
        ranges=ranges,
        lines_by_extension=_by_extension(records),
        found=found,
        lost=lost,
        extra=extra,
    )


def compare(
    acknowledged: Mapping[int, "array[int]"],
    partitions: "npt.NDArray[np.int32]",
    offsets: "npt.NDArray[np.int64]",
) -> tuple[int, int, int]:
    """Count the acknowledged records that were read, those that were not, and the other records.

    ``acknowledged`` holds offsets by partition. Record i was read at
    ``partitions[i], offsets[i]``.
    """
    found = sum(
        int(np.isin(np.frombuffer(acks, np.int64), offsets[partitions == number]).sum())
        for number, acks in acknowledged.items()
    )
    return found, sum(map(len, acknowledged.values())) - found, len(offsets) - found


def _load(
    session: "SparkSession", bootstrap: str, topic: str, ranges: Mapping[int, tuple[int, int]]
) -> "DataFrame":
    def offsets(side: int) -> str:
        return json.dumps({topic: {str(number): ends[side] for number, ends in ranges.items()}})

    return (
        session.read.format("quorate")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", offsets(0))
        .option("endingOffsets", offsets(1))
        .load()
    )


def _by_extension(records: "DataFrame") -> dict[str, int]:
    counted = records.groupBy("extension").count().collect()
    counts = Counter({row["extension"] or "(none)": row["count"] for row in counted})
    return dict(counts.most_common())
