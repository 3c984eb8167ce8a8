"""The compiled decoder: equal to the reference for whatever producers write, safe for the rest."""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import cramjam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from quorate.broker.log.batches.record_batch import read_header
from quorate.broker.log.compaction.log_cleaning import CleaningTask, LogCleaning
from quorate.common.topic_partition import TopicPartition
from quorate.spark.decoding import decoding_kernels as kernels
from quorate.spark.decoding.arrow_decoder import ArrowDecoder
from quorate.spark.decoding.decoded_columns import DecodedColumns, wanted_bits
from quorate.spark.decoding.record_batches import GROUP_BYTES, PlainRecords
from quorate.spark.errors import CorruptBatch
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
NOBODY = (-1, -1, -1)

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


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_decodes_what_compaction_leaves(codec: str) -> None:
    """Empty batches of both kinds, and times that count from when tombstones go."""
    records = [
        Record(offset, timestamp_ms=1_700_000_000_000 + offset, key=b"k%d" % (offset % 4), value=v)
        for offset, v in enumerate([b"v"] * 12 + [None, b"v", None, b"v"])
    ]
    frame = b"".join(
        encode_batch(records[at : at + 2], codec=codec, producer=(7, 0, at) if at < 4 else NOBODY)
        for at in range(0, 16, 2)
    )
    task = CleaningTask(
        dirty_from=0, pinned=frozenset([1, 3]), now_ms=10**13, delete_retention_ms=5, key_bytes=9999
    )
    cleaning = LogCleaning(task)
    assert cleaning.map(frame)
    left = [data for each in [*cleaning.clean(frame), *cleaning.finish()] for data in each.new]
    assert [read_header(data).record_count for data in left] == [0, 0, 0, 2, 2]
    assert decode(b"".join(left)).to_pylist() == rows(records[12:])
    assert decode(b"".join(left[:3])).num_rows == 0


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


def _patched(batch: bytes, at: int, byte: int) -> bytes:
    return batch[:at] + bytes([byte]) + batch[at + 1 :]


OKAY = (b"\x00", varint(0), varint(0))
NULLS = (varint(-1), varint(-1))
EMPTY = _record(*OKAY, *NULLS, varint(0))
ELEVEN_BYTES = b"\x80" * 10 + b"\x00"


def _claims(body: bytes, codec: int) -> bytes:
    return assemble(body, base_offset=0, last_delta=0, count=1, attributes=codec)


MALFORMED = {
    "shorter than a header": (b"\x00" * 60, "60 bytes are left"),
    "longer than the frame": (encode_batch([Record(0)])[:-1], r"says it has \d+ bytes"),
    "shorter than its header": (struct.pack(">qi", 0, 10) + b"\x00" * 60, "says it has 22 bytes"),
    "magic 1": (_patched(encode_batch([Record(0)]), 16, 1), "magic 1, expected 2"),
    "unknown codec": (_claims(b"\x00" * 9, 5), "unknown codec 5"),
    "broken gzip": (_claims(b"\x00" * 9, 1), r"decompressed \(codec 1\)"),
    "broken snappy": (_claims(b"\xff" * 9, 2), r"decompressed \(codec 2\)"),
    "broken xerial": (
        _claims(b"\x82SNAPPY\x00" + b"\x00" * 8 + b"\x7f\xff\xff\xff\x00", 2),
        "a snappy block of 2147483647 bytes",
    ),
    "cut xerial": (_claims(b"\x82SNAPPY\x00" + b"\x00" * 10, 2), r"decompressed \(codec 2\)"),
    "broken lz4": (_claims(b"\xff" * 9, 3), r"decompressed \(codec 3\)"),
    "broken zstd": (_claims(b"\xff" * 9, 4), r"decompressed \(codec 4\)"),
    "more records than bytes": (_batch(EMPTY, count=2), "2 records in 7 bytes"),
    "negative record count": (_batch(b"", count=-1), "-1 records"),
    "negative last delta": (_batch(EMPTY, last_delta=-1), "last offset delta -1"),
    "negative base offset": (
        assemble(b"", base_offset=-1, last_delta=0, count=0),
        "offset -1 has last offset delta 0",
    ),
    "batches out of order": (
        encode_batch([Record(9)]) + encode_batch([Record(3)]),
        "offset 3 comes after one that ends at 9",
    ),
    "record past the batch": (_batch(varint(100) + b"\x00" * 10), "its length"),
    "negative record length": (_batch(varint(-2) + b"\x00" * 10), "its length"),
    "no record": (_batch(varint(0) + b"\x00" * 10), "its length"),
    "endless varint": (_batch(b"\xff" * 20), "its length"),
    "varint of eleven bytes": (
        _batch(_record(b"\x00", ELEVEN_BYTES, varint(0), *NULLS, varint(0))),
        "timestamp or offset delta",
    ),
    "offset delta past the last": (
        _batch(_record(b"\x00", varint(0), varint(1), *NULLS, varint(0))),
        "timestamp or offset delta",
    ),
    "offset delta twice": (
        _batch(EMPTY * 2, count=2, last_delta=1),
        "record 1 of the batch at offset 5: its timestamp or offset delta",
    ),
    "negative offset delta": (
        _batch(_record(b"\x00", varint(0), varint(-1), *NULLS, varint(0))),
        "timestamp or offset delta",
    ),
    "key past the record": (
        _batch(_record(*OKAY, varint(50), b"abc", varint(-1), varint(0))),
        "its key",
    ),
    "key length below -1": (_batch(_record(*OKAY, varint(-2), varint(-1), varint(0))), "its key"),
    "value past the record": (
        _batch(_record(*OKAY, varint(-1), varint(1 << 40), b"abc")),
        "its value",
    ),
    "value length below -1": (
        _batch(_record(*OKAY, varint(-1), varint(-9), varint(0))),
        "its value",
    ),
    "header count below 0": (_batch(_record(*OKAY, *NULLS, varint(-1))), "its headers"),
    "too many headers": (_batch(_record(*OKAY, *NULLS, varint(1 << 40))), "its headers"),
    "null header key": (
        _batch(_record(*OKAY, *NULLS, varint(1), *NULLS)),
        "record at offset 5: a header",
    ),
    "header key past the record": (
        _batch(_record(*OKAY, *NULLS, varint(1), varint(9), varint(0))),
        "a header",
    ),
    "header value past the record": (
        _batch(_record(*OKAY, *NULLS, varint(1), varint(0), varint(9))),
        "a header",
    ),
    "header value far past the record": (
        _batch(_record(*OKAY, *NULLS, varint(1), varint(0), varint(1 << 40))),
        "a header",
    ),
    "header key far past the record": (
        _batch(_record(*OKAY, *NULLS, varint(1), varint(1 << 40), varint(0))),
        "a header",
    ),
    "key far past the record": (
        _batch(_record(*OKAY, varint(1 << 40), b"abc", varint(-1), varint(0))),
        "its key",
    ),
    "header value length below -1": (
        _batch(_record(*OKAY, *NULLS, varint(1), varint(0), varint(-2))),
        "a header",
    ),
    "bytes behind the headers": (_batch(_record(*OKAY, *NULLS, varint(0), b"abc")), "a header"),
    "bytes behind the last record": (_batch(EMPTY + b"\x00"), "bytes follow the last record"),
}


@pytest.mark.parametrize(("frame", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_batches_are_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(CorruptBatch, match=f"topic orders partition 3 .*{reason}"):
        decode(frame)


@pytest.mark.parametrize("behind", [0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("wanted", [False, True])
def test_what_lies_behind_the_records_is_never_read(behind: int, wanted: bool) -> None:
    record = Record(0, 300, b"key", b"v" * 70, (("h", b"x"), ("null", None)))
    whole = encode_batch([record])[61:]
    fields = whole[2:]
    assert varint(len(fields)) == whole[:2]
    bodies = [whole[:cut] for cut in range(len(whole))]
    bodies += [varint(cut) + fields[:cut] for cut in range(len(fields))]
    for body in bodies:
        memory = np.frombuffer(body + bytes([behind]) * 300, np.uint8)
        outcome = _run_kernels(memory[: len(body)], wanted)
        assert outcome == _run_kernels(np.frombuffer(body, np.uint8).copy(), wanted)
        assert outcome[0] != kernels.OK or not wanted


def _run_kernels(body: npt.NDArray[np.uint8], wanted: bool) -> tuple[int, list[int]]:
    """Both kernels over a batch of one record; the status and the report."""
    row = dict.fromkeys(range(kernels.TABLE_COLUMNS), 0) | {
        kernels.END: len(body),
        kernels.COUNT: 1,
    }
    plain = PlainRecords(pa.py_buffer(body), np.array([list(row.values())], dtype=np.int64), 1)
    columns = DecodedColumns(
        plain, wanted_bits(["key", "value", "headers"] if wanted else ["offset"])
    )
    return columns.decode(0, END), columns.report.tolist()


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
