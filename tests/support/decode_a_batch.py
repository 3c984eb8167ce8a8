"""Importing this reads a record as an executor does: what that loads is for a test to look at."""

from pyspark.sql.pandas.types import to_arrow_schema

import quorate.spark.reading.range_reader  # noqa: F401
from quorate.common.topic_partition import TopicPartition
from quorate.spark.decoding.arrow_decoder import ArrowDecoder
from quorate.spark.schema import source_schema
from tests.support.record_batches import Record, encode_batch

_SCHEMA = to_arrow_schema(source_schema(include_headers=True), timezone="UTC")
(_batch,) = ArrowDecoder(TopicPartition("orders", 0), 0, 1, _SCHEMA).decode(
    encode_batch([Record(0, headers=(("h", b"x"),))])
)
