"""Rows to a batch as a task does it: for a fresh interpreter, to see what that loads."""

import pyarrow as pa

import quorate.spark.writing.write_task  # noqa: F401 - all that a task needs is loaded
from quorate.spark.writing.batches import BatchBuilder, BatchSettings
from quorate.spark.writing.columns import rows_of
from quorate.spark.writing.partitioning import Partitioner
from quorate.spark.writing.targets import TopicTargets

ROWS = rows_of(pa.record_batch({"value": [b"value"]}), topic_column=False, now_ms=0)
PARTITIONER = Partitioner(lambda topic: TopicTargets(b"id", 1, 1 << 20), "t", 0)
BUILDER = BatchBuilder(PARTITIONER.targets, BatchSettings(1, 0, "none", 1 << 20))
FULL = [batch for part in PARTITIONER.split(ROWS) for batch in BUILDER.append(ROWS, part)]
assert not FULL
assert [batch.count for batch in BUILDER.close_all()] == [1]
