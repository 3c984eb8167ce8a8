"""One Spark session for the whole run: starting one takes longer than all its tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from quorate.spark.session import local_session

# Tests end before the optimizing compiler and the parallel collector have earned what they cost:
# a third of the CPU time of all tests of Spark.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """``local[2]`` with the format ``quorate``."""
    session = local_session(
        "quorate-tests", settings={"spark.driver.extraJavaOptions": JVM_OPTIONS}
    )
    yield session
    session.stop()
