"""The SQL of a pipeline is checked with Spark's own grammar before anything runs."""

import pytest
from pyspark.sql import SparkSession

from quorate.pipeline.pipeline_errors import TransformError
from quorate.pipeline.sql_check import check_sql, jvm_of_spark

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT *, length(value) AS size FROM records",
        "WITH sized AS (SELECT *, length(value) AS size FROM records) SELECT * FROM sized",
        "SELECT * FROM records WHERE value IS NOT NULL AND headers[0].key <=> 'a'",
        "FROM records |> WHERE partition = 0",
    ],
)
def test_a_query_is_accepted(spark: SparkSession, sql: str) -> None:
    check_sql(spark._jvm, sql)


@pytest.mark.parametrize(
    ("sql", "near", "position"),
    [
        ("SELEC * FROM records", "'SELEC'", "(line 1, pos 0)"),
        ("SELECT value,, key FROM records", "','", "(line 1, pos 13)"),
        ("SELECT *\nFROM records WHERE (value", "'('", "(line 2, pos 19)"),
    ],
)
def test_a_mistake_is_named_with_its_place(
    spark: SparkSession, sql: str, near: str, position: str
) -> None:
    with pytest.raises(TransformError) as refused:
        check_sql(spark._jvm, sql)
    message = str(refused.value)
    assert message.startswith("transform.sql: [PARSE_SYNTAX_ERROR]")
    assert near in message
    assert position in message
    assert "\n" not in message
    assert "Exception" not in message


@pytest.mark.parametrize(
    "sql", ["DROP TABLE records", "INSERT INTO lake SELECT * FROM records", "SET a = b"]
)
def test_what_is_no_query_is_refused(spark: SparkSession, sql: str) -> None:
    with pytest.raises(TransformError, match="must be a query"):
        check_sql(spark._jvm, sql)


@pytest.mark.slow
def test_a_jvm_of_its_own_is_enough() -> None:
    with jvm_of_spark() as jvm:
        check_sql(jvm, "SELECT * FROM records")
