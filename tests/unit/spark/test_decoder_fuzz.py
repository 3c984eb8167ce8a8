"""Damage to what real producers write, of every codec: right rows or an error, never a crash.

The checksum notices a flipped bit. So the same damage is done a second time with the checksum made
right again, as by a faulty producer: then rows may be wrong, but they are well-formed and no more
than the batches can hold.
"""

import random
import struct
from functools import cache

import crc32c
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from quorate.common.topic_partition import TopicPartition
from quorate.spark.decoding.arrow_decoder import ArrowDecoder
from quorate.spark.errors import CorruptBatch
from quorate.spark.schema import source_schema
from tests.support.record_batches import CODECS, Record, encode_batch

SCHEMA = to_arrow_schema(source_schema(include_headers=True), timezone="UTC")
BATCHES = 4
RECORDS = 60
ROUNDS = 150
CRC_AT, CHECKED_FROM = 17, 21


@cache
def batches(codec: str) -> tuple[bytes, ...]:
    """Some batches with nulls, headers, long and empty values."""
    source = random.Random(7)
    records = [
        Record(
            offset,
            1_700_000_000_000 + source.randrange(5000),
            source.choice((None, b"", source.randbytes(16))),
            source.choice((None, b"", source.randbytes(40), b"long " * 60)),
            source.choice(((), (("trace", source.randbytes(8)), ("empty", None)))),
        )
        for offset in range(BATCHES * RECORDS)
    ]
    return tuple(
        encode_batch(records[at : at + RECORDS], codec=codec)
        for at in range(0, len(records), RECORDS)
    )


def decode(frame: bytes) -> pa.Table:
    decoder = ArrowDecoder(TopicPartition("orders", 3), 0, BATCHES * RECORDS, SCHEMA)
    found = list(decoder.decode(frame))
    for batch in found:
        batch.validate(full=True)
    return pa.Table.from_batches(found, SCHEMA)


def flipped(batch: bytes, source: random.Random, first: int) -> bytes:
    damaged = bytearray(batch)
    for _ in range(source.randint(1, 3)):
        damaged[source.randrange(first, len(batch))] ^= 1 << source.randrange(8)
    return bytes(damaged)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(2))
def test_a_flipped_bit_is_noticed_or_changes_nothing(codec: str, seed: int) -> None:
    source, good = random.Random(seed), batches(codec)
    expected = decode(b"".join(good))
    refused = 0
    for _ in range(ROUNDS):
        which = source.randrange(BATCHES)
        damaged = flipped(good[which], source, 0)
        try:
            table = decode(b"".join((*good[:which], damaged, *good[which + 1 :])))
        except CorruptBatch:
            refused += 1
            continue
        # The leader epoch and the base offset are the broker's, and not under the checksum.
        columns = ["key", "value", "headers", "timestamp", "timestampType"]
        assert table.select(columns) == expected.select(columns).slice(0, table.num_rows)
    assert refused > ROUNDS * 0.9


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(2))
def test_damage_under_a_right_checksum_stays_within_bounds(codec: str, seed: int) -> None:
    source, good = random.Random(seed), batches(codec)
    for _ in range(ROUNDS):
        damaged = bytearray(flipped(good[1], source, CHECKED_FROM))
        struct.pack_into(">I", damaged, CRC_AT, crc32c.crc32c(damaged[CHECKED_FROM:]))
        try:
            table = decode(good[0] + bytes(damaged))
        except CorruptBatch:
            continue
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(set(offsets))
        assert table.num_rows <= BATCHES * RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_frame_is_noticed_unless_it_is_cut_between_batches(codec: str) -> None:
    good = batches(codec)
    frame = b"".join(good)
    whole = {sum(map(len, good[:count])): count * RECORDS for count in range(BATCHES + 1)}
    source = random.Random(1)
    cuts = {*whole, *(source.randrange(len(frame)) for _ in range(ROUNDS))}
    for cut in cuts:
        if cut in whole:
            assert decode(frame[:cut]).num_rows == whole[cut]
        else:
            with pytest.raises(CorruptBatch, match="topic orders partition 3"):
                decode(frame[:cut])
