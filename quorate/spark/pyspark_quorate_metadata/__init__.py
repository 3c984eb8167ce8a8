"""Registers the format ``quorate-metadata``: Spark looks for ``DefaultSource`` in ``pyspark_*``."""

from quorate.spark.metadata.source import QuorateMetadataSource as DefaultSource

__all__ = ["DefaultSource"]
