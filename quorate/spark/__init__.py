"""The Spark data source: offset ranges of topics as DataFrames.

``spark.dataSource.register(QuorateDataSource)``, or nothing at all where the package is installed:
Spark finds ``pyspark_quorate`` by its name. Then ``spark.read.format("quorate")`` takes the options
of Spark's own Kafka source.
"""

# ruff: noqa: E402 - libraries that do not fit are told before anything fails for it

from quorate.spark.libraries import check_libraries

check_libraries()

from quorate.spark.source import QuorateDataSource

__all__ = ["QuorateDataSource"]
