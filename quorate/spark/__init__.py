"""The Spark data source: it reads offset ranges of topics as DataFrames, and writes to topics.

Register it with ``spark.dataSource.register(QuorateDataSource)``. Where the package is installed,
this is not necessary, because Spark finds ``pyspark_quorate`` by its name. Then
``spark.read.format("quorate")`` takes the options of Spark's own Kafka source.
"""

# ruff: noqa: E402 - libraries that do not fit are reported before an import fails because of them

from quorate.spark.libraries import check_libraries

check_libraries()

from quorate.spark.source import QuorateDataSource

__all__ = ["QuorateDataSource"]
