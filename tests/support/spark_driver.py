"""A Spark driver on a host of a ``NetworkLab``; called through its ``Console``.

Functions of a module, for a worker process: the session is there between calls.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from quorate.spark.session import open_session
from tests.support.checked_records import Sums, sums_of
from tests.support.spark_hosts import HOST_VARIABLE
from tests.support.waiting import wait_until

GATE_TIMEOUT_S = 120.0


class Outcome(NamedTuple):
    """The result of a query, and the time at which it was there."""

    sums: dict[int, tuple[Sums, int]]
    """The sums and the number of different offsets of each partition."""
    ended_s: float


_sessions: list[SparkSession] = []


def start_session(master: str, settings: Mapping[str, str]) -> None:
    """Open a session at the master, in place of the one before."""
    stop_session()
    os.environ["SPARK_LOCAL_IP"] = settings["spark.driver.host"]
    _sessions.append(open_session("quorate-over-hosts", master=master, settings=settings))


def stop_session() -> None:
    """End the session, and its executors with it."""
    while _sessions:
        _sessions.pop().stop()


def wait_for_executors(count: int) -> None:
    """Return when ``count`` executors have registered. A query that starts earlier runs on those
    that are there.
    """
    context = _sessions[-1].sparkContext

    def have_registered() -> bool:
        # The driver has a row of its own.
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1 >= count

    wait_until(have_registered, f"{count} executors", timeout_s=GATE_TIMEOUT_S)


def load(options: Mapping[str, str]) -> DataFrame:
    """Return what the source reads with these options: partitions, offsets and values."""
    reader = _sessions[-1].read.format("quorate").options(**options)
    return reader.schema("partition int, offset bigint, value binary").load()


def read_through_gate(options: Mapping[str, str], gate: str) -> Outcome:
    """Return the sums. Every task is held up at its first rows until the gate is open."""
    try:
        frame = load(options).withColumn("partition", _held_up_at(gate))
        return Outcome(sums_of(frame), time.monotonic())
    except Exception as error:  # noqa: BLE001 - told to who asked
        # What Spark raises cannot be handed to another process as it is.
        raise RuntimeError(str(error)) from None


def seconds_to_read(options: Mapping[str, str]) -> tuple[float, int, int]:
    """Return how long reading all values took, and how many records and bytes of values there
    were.
    """
    frame = load(options).selectExpr("count(*)", "sum(length(value))")
    started_s = time.monotonic()
    ((rows, size),) = frame.collect()
    return time.monotonic() - started_s, rows, size


def _held_up_at(gate: str) -> Column:
    """The partition of a row. Nested, so that it travels to the executors by value.

    A task leaves a mark with the number of its partition and the host of its executor. It takes the
    value as well, so that not just numbers fill the pipe on the way to it.
    """
    opened, variable, timeout_s = str(Path(gate, "open")), HOST_VARIABLE, GATE_TIMEOUT_S
    passed: list[bool] = []

    def held_up(partition: int, _value: bytes) -> int:
        import os
        import time

        if not passed and not os.path.exists(opened):
            open(os.path.join(gate, f"{partition}@{os.environ[variable]}"), "a").close()
            end = time.monotonic() + timeout_s
            while not os.path.exists(opened) and time.monotonic() < end:
                time.sleep(0.02)
        if not passed:
            passed.append(True)
        return partition

    return F.udf(held_up, "int", useArrow=False).asNondeterministic()("partition", "value")
