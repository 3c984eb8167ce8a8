"""Spark's daemon of Python workers, with the source imported (``spark.python.daemon.module``).

Spark's own daemon forks workers that have imported nothing, and each spends half a second of CPU
time on that. A query with LIMIT ends its worker, so the next query would wait for one again.

What is imported here starts no thread that a fork would lose: gRPC starts its threads with its
first channel, in the worker.
"""

import gc
import signal
import socket
from collections.abc import Callable
from importlib import import_module
from typing import Final

from pyspark import daemon

BEFORE_THE_FORK: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "quorate.spark.reading.batch_reader",
    "quorate.spark.reading.range_reader",
    "quorate.spark.source",
)
_LEFT: Final = 1
"""The exit code after which Spark's daemon runs no further task in the worker."""


def main() -> None:
    """Serve workers until Spark closes the standard input."""
    for name in BEFORE_THE_FORK:
        import_module(name)
    gc.freeze()
    daemon.worker = while_spark_is_there(daemon.worker)
    daemon.manager()


def while_spark_is_there(run_task: Callable[[socket.socket, bool], int]) -> Callable[..., int]:
    """Return ``run_task``, which runs one task of a worker, as long as Spark is there to be told.

    Spark closes the connections of idle workers when a session stops, and that of a running one
    when a query with LIMIT has its rows. Spark's own loop would print a traceback for both.
    """

    def run_next(connection: socket.socket, authenticated: bool) -> int:
        # The daemon ends its workers with this signal and ignores it itself. A worker that waits
        # for its first task must not ignore it, too.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if not connection.recv(1, socket.MSG_PEEK):
            return _LEFT
        try:
            return run_task(connection, authenticated)
        except BrokenPipeError:
            return _LEFT

    return run_next


if __name__ == "__main__":
    main()
