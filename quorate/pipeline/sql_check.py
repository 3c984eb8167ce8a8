"""Checks the SQL of a pipeline with Spark's own parser, without a Spark session.

The parser needs a JVM with Spark's classes and nothing else. What only a session knows is not
checked: whether columns and functions exist.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from quorate.pipeline.pipeline_errors import PipelineError, TransformError

_COMMANDS: Final = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)
"""The classes of what is no query: it would change something when it runs."""


@contextmanager
def jvm_of_spark() -> Iterator[Any]:
    """Start a JVM with Spark's classes, which takes a few seconds, and end it afterwards.

    Raises:
        PipelineError: there is no Java for Spark.
    """
    from pyspark.java_gateway import launch_gateway

    from quorate.spark.java_home import JavaNotFound, use_java

    try:
        use_java()
    except JavaNotFound as error:
        raise PipelineError(str(error)) from error
    # The JVM's greetings would stand before the one sentence that says what is wrong.
    quiet = {"stderr": subprocess.DEVNULL}
    gateway = launch_gateway(popen_kwargs=quiet)  # type: ignore[no-untyped-call]
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def check_sql(jvm: Any, sql: str) -> None:  # noqa: ANN401 - py4j has no types
    """Check that the SQL of a pipeline is one query.

    Raises:
        TransformError: it is not; says what is wrong and where.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import ParseException

    try:
        plan = jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(sql)
    except Py4JJavaError as error:
        message = str(error.java_exception.getMessage())
        raise TransformError(f"transform.sql: {_what_is_wrong(message)}") from error
    except ParseException as error:  # PySpark translates errors once this process had a session.
        raise TransformError(f"transform.sql: {_what_is_wrong(str(error))}") from error
    if any(jvm.java.lang.Class.forName(one).isInstance(plan) for one in _COMMANDS):
        raise TransformError("transform.sql must be a query, such as SELECT * FROM records")


def _what_is_wrong(message: str) -> str:
    """Return Spark's sentence, which says the line and the position, without the SQL below it."""
    return message.strip().partition("\n")[0]
