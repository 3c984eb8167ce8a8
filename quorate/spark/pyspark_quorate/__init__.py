"""Registers the format ``quorate``: Spark looks for ``DefaultSource`` in modules ``pyspark_*``."""

from quorate.spark.source import QuorateDataSource as DefaultSource

__all__ = ["DefaultSource"]
