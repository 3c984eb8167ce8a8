"""What Spark is asked for, without Spark: which ranges, and which columns will do."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from quorate.common.topic_partition import TopicPartition
from quorate.pipeline.pipeline_errors import TransformError
from quorate.pipeline.run_progress import line
from quorate.pipeline.spark_rows import (
    cause_of,
    check_columns,
    check_folder_columns,
    options_of,
)
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.schema import source_schema
from quorate.tables.partitioning import parse_partitioning

SOURCE = source_schema(include_headers=False)


def changed(**columns: StructField | None) -> StructType:
    """The source's columns, some of them replaced, left out or added."""
    kept = [columns.get(one.name, one) for one in SOURCE.fields]
    added = [one for name, one in columns.items() if name not in SOURCE.names]
    return StructType([one for one in (*kept, *added) if one is not None])


def test_ranges_are_said_in_the_format_s_options() -> None:
    ranges = [OffsetRange(TopicPartition("t", n), n, n + 10) for n in (0, 2)]
    options = {name: json.loads(text) for name, text in options_of(ranges).items()}
    assert options == {
        "assign": {"t": [0, 2]},
        "startingOffsets": {"t": {"0": 0, "2": 2}},
        "endingOffsets": {"t": {"0": 10, "2": 12}},
    }


def test_columns_may_come_and_go_but_for_those_that_files_lie_by() -> None:
    check_columns(SOURCE, SOURCE)
    check_columns(changed(size=StructField("size", IntegerType()), key=None, value=None), SOURCE)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (changed(offset=None, topic=None), "drops topic, offset"),
        (changed(timestamp=StructField("timestamp", StringType())), "makes timestamp string"),
        (changed(key2=StructField("KEY", StringType())), "more than one column key"),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused(result: StructType, told: str) -> None:
    with pytest.raises(TransformError) as refused:
        check_columns(result, SOURCE)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("by", "added", "told"),
    [
        ("", {"date": StringType()}, "has a column named date"),
        ("hour(timestamp)", {"Timestamp_Hour": StringType()}, "column named timestamp_hour"),
        ("identity(country)", {}, "there is no column country: the columns are key, value"),
        ("hour(size)", {"size": IntegerType()}, "size is int"),
        ("identity(value)", {}, "value is binary: no folder can be named so"),
    ],
)
def test_folders_are_named_by_columns_that_can_name_them(
    by: str, added: dict[str, DataType], told: str
) -> None:
    result = changed(**{name: StructField(name, type_) for name, type_ in added.items()})
    with pytest.raises(TransformError) as refused:
        check_folder_columns(result, parse_partitioning(by))
    assert told in str(refused.value)


def test_columns_of_any_case_name_folders() -> None:
    result = changed(country=StructField("Country", StringType()))
    check_folder_columns(result, parse_partitioning("hour(timestamp),identity(country)"))
    check_folder_columns(SOURCE, ())


TRACEBACK = (
    """[PYTHON_DATA_SOURCE_ERROR] Failed when planning: Traceback (most recent call last):
  File "/spark/worker.py", line 1, in main
    process()
"""
    + """  File "/spark/serializers.py", line 2, in dump_stream
    for batch in iterator:
"""
    * 10
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACEBACK + "quorate.spark.errors.DataLoss: t-0 is gone\n", "DataLoss: t-0 is gone"),
        (
            TRACEBACK + "TimeoutError: no broker\nJVM stacktrace:\n\tat x.Y",
            "TimeoutError: no broker",
        ),
        (
            "[UNRESOLVED_COLUMN] no column a\n  in line 1",
            "[UNRESOLVED_COLUMN] no column a in line 1",
        ),
    ],
)
def test_an_error_of_planning_is_one_sentence_without_its_traceback(text: str, said: str) -> None:
    assert cause_of(PySparkException(text)) == said


def test_the_bar_tells_how_long_it_takes() -> None:
    assert line(0, 0, 1.0) == "looking at what there is"
    assert line(500_000, 2_000_000, 2.0).endswith(
        "25%  500,000 of 2,000,000 offsets, 250,000/s, 0:06 left"
    )
    assert line(1, 10_000, 1.0).endswith("1/s, 2:46:39 left")
    assert "100%" in line(12, 10, 1.0)
