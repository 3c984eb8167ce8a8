"""Spark's daemon of Python workers, with the source imported (``spark.python.daemon.module``).

Spark's own daemon forks workers that have imported nothing, and each spends half a second of CPU
time on that. A query with LIMIT ends its worker, so the next query would wait for one again.

What is imported here starts no thread that a fork would lose: gRPC starts its threads with its
first channel, in the worker.
"""

import gc
import os
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
    let_the_end_of_the_daemon_end_workers()
    daemon.worker = while_spark_is_there(daemon.worker)
    daemon.manager()


def let_the_end_of_the_daemon_end_workers() -> None:
    """Have every worker end by the signal that the daemon sends to all of them when it ends.

    The daemon ignores this signal (SIGHUP) itself, and so would a worker until its first task: one
    that was forked a moment before would outlive the daemon. A blocked signal waits instead, also
    where it is ignored, so none is lost between the fork and the line that stops ignoring it.
    """
    ending = {signal.SIGHUP}

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, ending)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)

    def unblock_in_worker() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=unblock_in_worker)


def while_spark_is_there(run_task: Callable[[socket.socket, bool], int]) -> Callable[..., int]:
    """Return ``run_task``, which runs one task of a worker, as long as Spark is there to be told.

    Spark closes the connections of idle workers when a session stops, and that of a running one
    when a query with LIMIT has its rows. Spark's own loop would print a traceback for both.
    """

    def run_next(connection: socket.socket, authenticated: bool) -> int:
        if not connection.recv(1, socket.MSG_PEEK):
            return _LEFT
        try:
            return run_task(connection, authenticated)
        except BrokenPipeError:
            return _LEFT

    return run_next


if __name__ == "__main__":
    main()
