"""A Spark query held up in the middle of its partitions, so that something can happen there.

The gate is a Python function of each row behind the source, which waits until it may go on.
Meanwhile the source can fill no more than the buffers in between: a partition much larger than
those is surely in mid-read.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.support.waiting import wait_until

GATE_TIMEOUT_S = 60.0
_POLL_S = 0.02


class GatedQuery:
    """``frame.toArrow()`` in a thread of its own; a context manager, which opens the gate at last.

    ``frame`` needs the columns ``partition`` and ``value``.
    """

    def __init__(self, frame: DataFrame, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._allowed = 0
        self._allow(0)
        self._gated = frame.withColumn("partition", _gate(folder))
        self._table: pa.Table | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="gated-query")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.open()
        self._thread.join()

    def wait_until_reached(self, *partitions: int) -> None:
        """Wait until rows of each of these have come to the gate."""
        marks = [self._folder / f"reached-{partition}" for partition in partitions]
        self._wait(lambda: all(mark.exists() for mark in marks), f"rows of {partitions}")

    def let_pass(self, rows: int) -> None:
        """Let that many more pass, of whatever partitions, and wait until they have."""
        self._allow(self._allowed + rows)
        come = self._folder / "come"
        self._wait(lambda: come.stat().st_size >= self._allowed, f"{self._allowed} rows")

    def open(self) -> None:
        """Let everything pass."""
        (self._folder / "open").touch()

    def result(self) -> pa.Table:
        """All rows, once the gate has been opened; raises what the query ended with."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._table is not None
        return self._table

    def _allow(self, rows: int) -> None:
        self._allowed = rows
        (self._folder / "allowed.new").write_text(str(rows))
        (self._folder / "allowed.new").rename(self._folder / "allowed")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            if condition():
                return True
            if self._failure is not None:
                raise self._failure
            return False

        wait_until(holds, what, timeout_s=GATE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._table = self._gated.toArrow()
        except Exception as failure:  # noqa: BLE001 - raised by result()
            self._failure = failure


def _gate(folder: Path) -> Column:
    """Made here and not at the top: what is nested travels to the workers by value.

    It takes the value as well, so that not just numbers fill the pipe on the way to it.
    """
    place, opened, timeout_s, poll_s = str(folder), str(folder / "open"), GATE_TIMEOUT_S, _POLL_S

    def gate(partition: int, _value: bytes) -> int:
        import os
        import time

        def is_open() -> bool:
            with open(os.path.join(place, "allowed")) as file:
                return os.path.exists(opened) or come <= int(file.read() or "0")

        if not os.path.exists(opened):
            open(os.path.join(place, f"reached-{partition}"), "a").close()
            with open(os.path.join(place, "come"), "ab") as file:
                file.write(b".")
                come = file.tell()
            end = time.monotonic() + timeout_s
            while not is_open() and time.monotonic() < end:
                time.sleep(poll_s)
        return partition

    return F.udf(gate, "int", useArrow=False).asNondeterministic()("partition", "value")
