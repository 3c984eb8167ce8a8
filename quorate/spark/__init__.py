"""The Spark data source: offset ranges of topics as DataFrames.

``spark.dataSource.register(QuorateDataSource)``, or nothing at all where the package is installed:
Spark finds ``pyspark_quorate`` by its name. Then ``spark.read.format("quorate")`` takes the options
of Spark's own Kafka source.
"""

from quorate.spark.source import QuorateDataSource

__all__ = ["QuorateDataSource"]
