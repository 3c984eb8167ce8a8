"""One Spark session for the whole run: starting one takes longer than all its tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from quorate.spark.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """``local[2]`` with the format ``quorate``."""
    session = local_session("quorate-tests")
    yield session
    session.stop()
