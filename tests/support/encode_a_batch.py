"""Rows to a batch as a task does it: for a fresh interpreter, to see what that loads."""

import pyarrow as pa

import quorate.spark.writing.write_task  # noqa: F401 - all that a task needs is loaded
from quorate.spark.writing.batch_builder import BatchBuilder, BatchSettings
from quorate.spark.writing.partitioner import Partitioner, TargetTopic
from quorate.spark.writing.row_columns import rows_of

ROWS = rows_of(pa.record_batch({"value": [b"value"]}), topic_column=False, now_ms=0)
PARTITIONER = Partitioner(lambda topic: TargetTopic(b"id", 1, 1 << 20), "t", 0)
BUILDER = BatchBuilder(PARTITIONER.targets, BatchSettings(1, 0, "none", 1 << 20))
FULL = [batch for part in PARTITIONER.split(ROWS) for batch in BUILDER.append(ROWS, part)]
assert not FULL
assert [batch.count for batch in BUILDER.close_all()] == [1]
