"""Spark's daemon of Python workers, with the source imported (``spark.python.daemon.module``).

Spark's own daemon forks workers that have imported nothing, and each spends half a second of CPU
time on that. A query with LIMIT ends its worker, so the next query would wait for one again.

What is imported here starts no thread that a fork would lose: gRPC starts its threads with its
first channel, in the worker.
"""

import gc
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


def main() -> None:
    """Serve workers until Spark closes the standard input."""
    for name in BEFORE_THE_FORK:
        import_module(name)
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
