"""Which batches of a table service are given to Spark."""

import pyarrow as pa
import pytest

from quorate.common.topic_partition import TopicPartition
from quorate.spark.offset_ranges import OffsetRange
from quorate.tables.service.spark_service import SPARK_OFFSETS_MIN, DividedWork
from tests.unit.tables.table_world import ArrowTableRows


class Rows(ArrowTableRows):
    """Notes what is asked of it."""

    def __init__(self, name: str) -> None:
        super().__init__(pa.schema([(name, pa.int64())]))
        self.asked: list[str] = []

    def plan(self, ranges: object) -> None:
        self.asked.append("plan")

    def cancel(self) -> None:
        self.asked.append("cancel")


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ((SPARK_OFFSETS_MIN - 1,), "local"),
        ((SPARK_OFFSETS_MIN,), "spark"),
        ((SPARK_OFFSETS_MIN // 2, SPARK_OFFSETS_MIN - SPARK_OFFSETS_MIN // 2), "spark"),
    ],
)
def test_large_batches_are_for_spark(sizes: tuple[int, ...], chosen: str) -> None:
    both = {name: Rows(name) for name in ("local", "spark")}
    rows = DividedWork(both["local"], both["spark"])
    assert rows.schema.names == ["local"]
    rows.plan([OffsetRange(TopicPartition("t", n), 0, size, b"") for n, size in enumerate(sizes)])
    assert rows.schema.names == [chosen]
    assert {name: one.asked for name, one in both.items() if one.asked} == {chosen: ["plan"]}
    rows.cancel()
    assert all("cancel" in one.asked for one in both.values())
