"""One Spark session for the whole run: starting one takes longer than all its tests."""

import logging
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from quorate.spark.session import local_session

# Tests end before the optimizing compiler and the parallel collector have earned what they cost:
# a third of the CPU time of all tests of Spark.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session", autouse=True)
def _handlers_keep_their_format() -> Iterator[None]:
    """PySpark's loggers have every handler that they are given write JSON, pytest's too, and from
    then on in all tests of the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """``local[2]`` with the format ``quorate``."""
    session = local_session(
        "quorate-tests", settings={"spark.driver.extraJavaOptions": JVM_OPTIONS}
    )
    yield session
    session.stop()
