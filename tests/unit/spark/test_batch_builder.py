"""Rows into batches: the bytes of the reference encoder, and back through the decoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from quorate.common.topic_partition import TopicPartition
from quorate.spark.decoding.arrow_decoder import ArrowDecoder
from quorate.spark.errors import RecordTooLarge, RowError
from quorate.spark.schema import source_schema
from quorate.spark.writing import batch_builder as batches_module
from quorate.spark.writing.batch_builder import (
    HEADER,
    HEADER_BYTES,
    SEQUENCES,
    BatchBuilder,
    BatchSettings,
    ProducerBatch,
)
from quorate.spark.writing.partitioner import RowsOfPartitionSlot, TargetPartition
from quorate.spark.writing.row_columns import Rows, rows_of
from tests.support.examples import examples
from tests.support.record_batches import Record, encode_batch

T0 = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = to_arrow_schema(source_schema(include_headers=True), timezone="UTC")


@dataclass(frozen=True)
class Row:
    value: bytes | None = b"value"
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time_ms: int = NOW_MS


def arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    """As Spark would hand them over."""
    headers = [[{"key": key, "value": value} for key, value in row.headers] or None for row in rows]
    times = pa.array([row.time_ms * 1000 for row in rows], pa.int64())
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "timestamp": times.cast(pa.timestamp("us", "UTC")),
        }
    )


def read(batch: pa.RecordBatch) -> Rows:
    return rows_of(batch, topic_column=False, now_ms=NOW_MS)


def builder(codec: str = "none", batch_bytes: int = 1 << 20, bytes_max: int = 0) -> BatchBuilder:
    return BatchBuilder(
        [
            TargetPartition(T0, b"id", bytes_max),
            TargetPartition(TopicPartition("t", 1), b"id", bytes_max),
        ],
        BatchSettings(producer_id=77, producer_epoch=3, codec=codec, batch_bytes=batch_bytes),
    )


def whole(batch: ProducerBatch) -> bytes:
    data = b"".join(batch.records)
    assert len(data) == batch.size
    return data


def append(into: BatchBuilder, rows: Rows, slot: int = 0) -> list[ProducerBatch]:
    return list(into.append(rows, RowsOfPartitionSlot(slot, np.arange(rows.count), 0, rows.count)))


def build(rows: Rows, **settings_: Any) -> list[ProducerBatch]:  # noqa: ANN401 - as builder
    into = builder(**settings_)
    closed = append(into, rows)
    return closed + list(into.close_all())


def decoded(batches: Sequence[ProducerBatch]) -> list[Row]:
    """What the source reads of them once a log has given them offsets."""
    data = bytearray()
    offset = 0
    for batch in batches:
        one = bytearray(whole(batch))
        one[:8] = offset.to_bytes(8, "big")
        data += one
        offset += batch.count
    found: list[Row] = []
    for arrow_batch in ArrowDecoder(T0, 0, offset, SCHEMA).decode(bytes(data)):
        times = arrow_batch["timestamp"].cast(pa.int64()).to_pylist()
        for row, time_us in zip(arrow_batch.to_pylist(), times, strict=True):
            headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
            found.append(Row(row["value"], row["key"], headers, time_us // 1000))
    return found


a_row = st.builds(
    Row,
    value=st.none() | st.binary(max_size=300),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(
        st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3
    ).map(tuple),
    time_ms=st.integers(NOW_MS - 10**7, NOW_MS + 10**7),
)
some_rows = st.lists(a_row, min_size=1, max_size=40)


@given(some_rows)
@settings(max_examples=examples(25))
def test_d2_records_are_those_of_the_reference_encoder(rows: list[Row]) -> None:
    (batch,) = build(read(arrow(rows)))
    expected = encode_batch(
        [Record(n, row.time_ms, row.key, row.value, row.headers) for n, row in enumerate(rows)]
    )
    data = whole(batch)
    assert data[HEADER_BYTES:] == expected[HEADER_BYTES:]
    header, reference = HEADER.unpack_from(data), HEADER.unpack_from(expected)
    same = slice(5, 9)  # Attributes, last offset delta, base and maximum of the timestamps.
    assert header[same] == reference[same]
    assert header[1] == reference[1]
    assert header[9:] == (77, 3, 0, len(rows))


@given(some_rows, st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.integers(70, 800))
@settings(max_examples=examples(25))
def test_d2_what_is_written_is_what_is_read(rows: list[Row], codec: str, limit: int) -> None:
    batches = build(read(arrow(rows)), codec=codec, batch_bytes=limit)
    assert decoded(batches) == rows
    assert [batch.base_sequence for batch in batches] == [
        sum(batch.count for batch in batches[:n]) for n in range(len(batches))
    ]


@given(some_rows, st.integers(0, 10), st.integers(1, 30))
@settings(max_examples=examples(15))
def test_slices_are_read_from_where_they_begin(rows: list[Row], begin: int, count: int) -> None:
    cut = arrow(rows).slice(begin, count)
    if cut.num_rows:
        assert decoded(build(read(cut))) == rows[begin : begin + count]


@pytest.mark.parametrize("binary", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(),
                                    pa.binary_view(), pa.string_view()])  # fmt: skip
def test_strings_and_bytes_of_every_kind_of_arrow(binary: pa.DataType) -> None:
    texts = ["", "one", None, "é" * 300]
    column = pa.array(texts, pa.string()).cast(binary) if "view" not in str(binary) else pa.array(
        texts, pa.string_view()).cast(binary)  # fmt: skip
    batch = pa.record_batch({"value": column, "key": column})
    expected = [None if text is None else text.encode() for text in texts]
    found = decoded(build(read(batch)))
    assert [row.value for row in found] == [row.key for row in found] == expected


def test_a_column_of_nothing_is_nothing() -> None:
    batch = pa.record_batch({"value": pa.nulls(3), "headers": pa.nulls(3, HEADERS)})
    assert decoded(build(read(batch))) == [Row(None)] * 3


def test_rows_without_a_time_were_made_now() -> None:
    times = pa.array([5_000, None], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": times})
    assert [row.time_ms for row in decoded(build(read(batch)))] == [5, NOW_MS]


def test_compressible_batches_shrink_and_others_stay_as_they_are() -> None:
    same, random = [Row(b"x" * 10_000)], [Row(np.random.default_rng(1).bytes(10_000))]
    for number, codec in enumerate(("gzip", "snappy", "lz4", "zstd"), 1):
        (small,), (plain,) = build(read(arrow(same)), codec=codec), build(
            read(arrow(random)), codec=codec)  # fmt: skip
        assert small.size < 1000
        assert whole(small)[22] & 7 == number
        assert whole(plain)[22] & 7 == 0


def test_java_reads_our_lz4_frames() -> None:
    """Kafka's Java client refuses blocks that depend on each other (bit 5 of the flags unset)."""
    for size in (10_000, 5_000_000):
        (batch,) = build(read(arrow([Row(b"x" * size)])), codec="lz4")
        frame = whole(batch)[HEADER_BYTES:]
        assert frame[:4] == bytes.fromhex("04224d18")
        assert frame[4] == 0b0110_0000
        assert decoded([batch]) == [Row(b"x" * size)]


def test_batches_of_several_records_are_no_larger_than_asked() -> None:
    rows = [Row(bytes(n % 97)) for n in range(2000)]
    closed = build(read(arrow(rows)), batch_bytes=4096)
    assert all(3900 < batch.size <= 4096 for batch in closed[:-1])
    tight = build(read(arrow(rows)), batch_bytes=1 << 20, bytes_max=1000)
    assert max(batch.size for batch in tight) <= 1000
    assert decoded(tight) == rows


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    rows = [Row(b"small"), Row(bytes(100_000)), Row(b"small")]
    batches = build(read(arrow(rows)), batch_bytes=1000)
    assert [batch.count for batch in batches] == [1, 1, 1]
    assert decoded(batches) == rows


def test_a_record_that_its_topic_does_not_take_is_named() -> None:
    rows = read(arrow([Row(), Row(bytes(5000))]))
    with pytest.raises(RecordTooLarge, match=r"topic t partition 0 has 50\d\d bytes .* is 4000 "):
        build(rows, bytes_max=4000)
    assert build(rows, bytes_max=4000, codec="zstd"), "only what it comes to counts"
    with pytest.raises(RecordTooLarge, match=r"topic t partition 0 .* the limit is 16711680"):
        build(read(arrow([Row(bytes(17 << 20))])))


def test_sequences_begin_again_behind_the_last() -> None:
    into = builder()
    into._sequences[0] = SEQUENCES - 2
    first = [*append(into, read(arrow([Row()] * 5))), *into.close_all()]
    second = [*append(into, read(arrow([Row()]))), *into.close_all()]
    assert [batch.base_sequence for batch in first + second] == [SEQUENCES - 2, 3]


def test_open_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "OPEN_BYTES_MAX", 100_000)
    into = builder()
    append(into, read(arrow([Row(bytes(80_000))])), slot=0)
    assert list(into.close_largest()) == []
    append(into, read(arrow([Row(bytes(30_000))])), slot=1)
    (closed,) = into.close_largest()
    assert closed.target.partition == T0
    assert [batch.target.partition.partition for batch in into.close_all()] == [1]
    assert into.open_bytes == 0


def test_headers_need_keys_and_rows_need_topics() -> None:
    headers = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    with pytest.raises(RowError, match="a header has no key"):
        read(pa.record_batch({"value": pa.array([b"v"]), "headers": headers}))
    topics = pa.record_batch({"value": pa.array([b"v", b"w"]), "topic": pa.array(["t", None])})
    with pytest.raises(RowError, match="a row has no topic"):
        rows_of(topics, topic_column=True, now_ms=0)
    assert read(topics).topics is None, "the option names the topic"
