"""The decoder alone: frames in memory to Arrow, in one thread."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bench._support import Bench
from bench.spark_reading.topics import Topic, frames
from quorate.common.topic_partition import TopicPartition
from quorate.spark.decoding.arrow_decoder import ArrowDecoder
from quorate.spark.reading.frame_stream import split_frame
from quorate.spark.schema import source_schema

_PLAIN: Final = Topic("decode-100", 100)
_KEYED: Final = Topic("decode-keyed", 100, 16)
_CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
CASES: Final = {
    "decode 100 B": _PLAIN,
    "decode 100 B + 16 B keys": _KEYED,
    "decode 100 B + 16 B keys, 16 KiB batches": replace(
        _KEYED, name="decode-small", batch_bytes=16 << 10
    ),
    "decode 1 KB": Topic("decode-1k", 1024),
    **{
        f"decode 100 B + 16 B keys, {codec}": replace(_KEYED, name=f"decode-{codec}", codec=codec)
        for codec in _CODECS
    },
}
_CORPUS_BYTES: Final = 8 << 20
"""The size of the frames that are decoded again and again: about what is fresh from the socket at a
time."""


def measure_decoder(bench: Bench, bootstrap: str) -> None:
    """A row for each case, and one for the offsets alone. Per second of CPU time of the thread."""
    for name, topic in CASES.items():
        rows = _CORPUS_BYTES // topic.record_bytes
        topic.create(bootstrap, rows)
        corpus = list(frames(bootstrap, topic, rows))
        _measure(bench, name, topic, corpus, source_schema(include_headers=False))
        if topic == _KEYED:
            offset = StructType([source_schema(include_headers=False)["offset"]])
            _measure(bench, f"{name}, offset only", topic, corpus, offset)


def _measure(
    bench: Bench, name: str, topic: Topic, corpus: Sequence[bytes], schema: StructType
) -> None:
    figures = bench.repeat(lambda: _decode(bench, corpus, topic, schema))
    bench.row({"case": name}, figures)


def _decode(
    bench: Bench, corpus: Sequence[bytes], topic: Topic, schema: StructType
) -> dict[str, float]:
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    records = [split_frame(frame)[1] for frame in corpus]
    rows, seconds = 0, 0.0
    while seconds < bench.pick(full=1.0, quick=0.2):
        decoder = ArrowDecoder(TopicPartition(topic.name, 0), 0, 1 << 62, arrow_schema)
        started = time.thread_time()
        rows += sum(batch.num_rows for frame in records for batch in decoder.decode(frame))
        seconds += time.thread_time() - started
    return {"Mrow/s": rows / seconds / 1e6, "GB/s": rows * topic.record_bytes / seconds / 1e9}
