"""The compiled decoder: equal to the reference for whatever producers write, safe for the rest."""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import cramjam
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from quorate.spark.arrow_columns import ArrowDecoder
from quorate.spark.errors import CorruptBatch
from quorate.spark.ranges import TopicPartition
from quorate.spark.record_batches import GROUP_BYTES
from quorate.spark.schema import source_schema
from tests.support.record_batches import (
    CODECS,
    CONTROL,
    LOG_APPEND_TIME,
    Record,
    assemble,
    encode_batch,
    varint,
)

SCHEMA = to_arrow_schema(source_schema(include_headers=True), timezone="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = 1 << 62

small_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), small_bytes), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 20) -> list[Record]:
    """Records in order of offsets, with the gaps that compaction leaves."""
    offset = draw(st.integers(0, 1 << 40))
    records = []
    for _ in range(draw(st.integers(1, max_size))):
        records.append(
            Record(
                offset,
                draw(st.integers(-1, 1 << 42)),
                draw(small_bytes),
                draw(small_bytes),
                draw(headers),
            )
        )
        offset += draw(st.integers(1, 200))
    return records


def decode(frame: bytes, start: int = 0, end: int = END, schema: pa.Schema = SCHEMA) -> pa.Table:
    decoder = ArrowDecoder(TopicPartition("orders", 3), start, end, schema)
    batches = list(decoder.decode(frame))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema)
    return pa.Table.from_batches(batches, schema)


def rows(records: Sequence[Record]) -> list[dict[str, object]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 3,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp_ms),
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for record in records
    ]


@given(
    record_lists(),
    st.sampled_from(sorted(CODECS)),
    st.integers(1, 5),
    st.integers(-2, 22),
    st.integers(-2, 22),
)
def test_d2_decodes_what_the_reference_encodes(
    records: list[Record], codec: str, batch_size: int, first: int, behind_last: int
) -> None:
    frame = b"".join(
        encode_batch(records[at : at + batch_size], codec=codec)
        for at in range(0, len(records), batch_size)
    )
    offsets = [record.offset for record in records]
    start = offsets[first] if 0 <= first < len(records) else max(0, offsets[0] - 1)
    end = offsets[behind_last] if 0 <= behind_last < len(records) else offsets[-1] + 1
    expected = [record for record in records if start <= record.offset < end]
    assert decode(frame, start, end).to_pylist() == rows(expected)


@given(record_lists(max_size=8), st.sampled_from(("key", "value", "offset", "headers", "topic")))
def test_a_projection_gives_the_same_column(records: list[Record], column: str) -> None:
    frame = encode_batch(records)
    schema = pa.schema([SCHEMA.field(column)])
    assert decode(frame, schema=schema).column(column).equals(decode(frame).column(column))


@pytest.mark.parametrize("compression", [0, 1])
def test_decodes_batches_of_aiokafka(compression: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=7,
        producer_epoch=1,
        base_sequence=0,
        batch_size=1 << 20,
    )
    expected = [
        Record(n, 1_700_000_000_000 + n, None if n % 2 else b"k%d" % n, b"v" * n, (("h", b"x"),))
        for n in range(300)
    ]
    for record in expected:
        builder.append(
            record.offset, record.timestamp_ms, record.key, record.value, list(record.headers)
        )
    assert decode(bytes(builder.build())).to_pylist() == rows(expected)


def test_decodes_snappy_without_javas_framing() -> None:
    plain = encode_batch([Record(0), Record(1)])
    body = bytes(cramjam.snappy.compress_raw(plain[61:]))
    frame = assemble(
        body,
        base_offset=0,
        last_delta=1,
        count=2,
        attributes=CODECS["snappy"],
        base_timestamp=1_700_000_000_000,
    )
    assert decode(frame).to_pylist() == rows([Record(0), Record(1)])


def test_log_append_time_is_the_batchs_for_every_record() -> None:
    frame = encode_batch([Record(0, 1000), Record(1, 5000)], attributes=LOG_APPEND_TIME)
    table = decode(frame)
    assert table.column("timestampType").to_pylist() == [1, 1]
    assert table.column("timestamp").to_pylist() == [EPOCH + timedelta(seconds=5)] * 2


def test_a_header_key_that_is_no_utf8_is_replaced() -> None:
    key = varint(2) + b"k\x80"
    frame = _batch(_record(*OKAY, *[varint(-1)] * 2, varint(1), key, varint(-1)))
    (found,) = decode(frame).column("headers").to_pylist()
    assert found == [{"key": "k\ufffd", "value": None}]


def test_control_batches_are_skipped_and_move_the_position() -> None:
    frame = b"".join(
        (
            encode_batch([Record(0)]),
            encode_batch([Record(1)], attributes=CONTROL),
            encode_batch([Record(2)]),
            encode_batch([Record(3)], attributes=CONTROL),
        )
    )
    decoder = ArrowDecoder(TopicPartition("orders", 3), 0, END, SCHEMA)
    (batch,) = decoder.decode(frame)
    assert batch.column("offset").to_pylist() == [0, 2]
    assert decoder.next_offset == 4


def test_an_empty_batch_of_compaction_moves_the_position() -> None:
    decoder = ArrowDecoder(TopicPartition("orders", 3), 0, END, SCHEMA)
    assert list(decoder.decode(encode_batch([], base_offset=10, last_offset=19))) == []
    assert decoder.next_offset == 20


def test_large_batches_come_out_about_a_mebibyte_at_a_time() -> None:
    records = [[Record(n, value=bytes(100_000))] for n in range(50)]
    decoder = ArrowDecoder(TopicPartition("orders", 3), 0, END, SCHEMA)
    batches = list(decoder.decode(b"".join(encode_batch(r, codec="zstd") for r in records)))
    assert [batch.num_rows for batch in batches] == [11, 11, 11, 11, 6]
    assert all(batch.nbytes < GROUP_BYTES + 200_000 for batch in batches)


def test_timestamps_that_spark_cannot_hold_are_clamped() -> None:
    table = decode(encode_batch([Record(0, (1 << 63) - 1)]))
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [
        ((1 << 63) // 1000 - 1) * 1000
    ]


def test_the_error_names_topic_partition_and_offset() -> None:
    good, bad = encode_batch([Record(41)]), bytearray(encode_batch([Record(42)]))
    bad[-1] ^= 0xFF
    with pytest.raises(CorruptBatch, match=r"topic orders partition 3 .* offset 42 has checksum"):
        decode(good + bytes(bad))


def _batch(body: bytes, count: int = 1, last_delta: int = 0) -> bytes:
    return assemble(body, base_offset=5, last_delta=last_delta, count=count)


def _record(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return varint(len(body)) + body


OKAY = (b"\x00", varint(0), varint(0))
MALFORMED = {
    "shorter than a header": b"\x00" * 60,
    "says it is longer than the frame": encode_batch([Record(0)])[:-1],
    "says it is shorter than its header": struct.pack(">qi", 0, 10) + b"\x00" * 60,
    "magic 1": encode_batch([Record(0)])[:16] + b"\x01" + encode_batch([Record(0)])[17:],
    "unknown codec": assemble(b"\x00" * 9, base_offset=0, last_delta=0, count=1, attributes=5),
    "broken gzip": assemble(b"\x00" * 9, base_offset=0, last_delta=0, count=1, attributes=1),
    "broken snappy": assemble(b"\xff" * 9, base_offset=0, last_delta=0, count=1, attributes=2),
    "broken xerial": assemble(
        b"\x82SNAPPY\x00" + b"\x00" * 8 + b"\x7f\xff\xff\xff\x00",
        base_offset=0, last_delta=0, count=1, attributes=2,
    ),
    "broken lz4": assemble(b"\xff" * 9, base_offset=0, last_delta=0, count=1, attributes=3),
    "broken zstd": assemble(b"\xff" * 9, base_offset=0, last_delta=0, count=1, attributes=4),
    "more records than bytes": _batch(_record(*OKAY, varint(-1), varint(-1), varint(0)), count=2),
    "negative record count": _batch(b"", count=-1),
    "negative base offset": assemble(b"", base_offset=-1, last_delta=0, count=0),
    "record runs past the batch": _batch(varint(100) + b"\x00" * 10),
    "negative record length": _batch(varint(-2) + b"\x00" * 10),
    "endless varint": _batch(b"\xff" * 20),
    "offset delta past the last": _batch(_record(b"\x00", varint(0), varint(1), *[varint(-1)] * 3)),
    "offset delta twice": _batch(
        _record(*OKAY, varint(-1), varint(-1), varint(0)) * 2, count=2, last_delta=1
    ),
    "key runs past the record": _batch(_record(*OKAY, varint(50), b"abc", varint(-1), varint(0))),
    "key length below -1": _batch(_record(*OKAY, varint(-2), varint(-1), varint(0))),
    "value runs past the record": _batch(_record(*OKAY, varint(-1), varint(1 << 40), b"abc")),
    "value length below -1": _batch(_record(*OKAY, varint(-1), varint(-9), varint(0))),
    "header count below 0": _batch(_record(*OKAY, varint(-1), varint(-1), varint(-1))),
    "too many headers": _batch(_record(*OKAY, varint(-1), varint(-1), varint(1 << 40))),
    "null header key": _batch(_record(*OKAY, *[varint(-1)] * 2, varint(1), varint(-1), varint(-1))),
    "header value past the record": _batch(
        _record(*OKAY, *[varint(-1)] * 2, varint(1), varint(0), varint(9))
    ),
    "bytes behind the headers": _batch(_record(*OKAY, *[varint(-1)] * 2, varint(0), b"abc")),
    "bytes behind the last record": _batch(
        _record(*OKAY, *[varint(-1)] * 2, varint(0)) + b"\x00"
    ),
    "batches out of order": encode_batch([Record(9)]) + encode_batch([Record(3)]),
}  # fmt: skip


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED)
def test_malformed_batches_are_refused(frame: bytes) -> None:
    with pytest.raises(CorruptBatch, match="topic orders partition 3"):
        decode(frame)


@given(
    st.binary(max_size=200),
    st.integers(0, 40),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from((0, 0, 0, 1, 2, 3, 4, 7)),
)
def test_any_body_decodes_or_is_refused(
    body: bytes, count: int, last_delta: int, attributes: int
) -> None:
    frame = assemble(body, base_offset=5, last_delta=last_delta, count=count, attributes=attributes)
    try:
        decode(frame)
    except CorruptBatch:
        return


@given(record_lists(max_size=6), st.data())
def test_any_damage_decodes_to_valid_arrow_or_is_refused(
    records: list[Record], data: st.DataObject
) -> None:
    body = bytearray(encode_batch(records)[61:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    frame = assemble(
        bytes(body),
        base_offset=records[0].offset,
        last_delta=records[-1].offset - records[0].offset,
        count=len(records),
    )
    try:
        table = decode(frame)
    except CorruptBatch:
        return
    assert table.num_rows == len(records)
