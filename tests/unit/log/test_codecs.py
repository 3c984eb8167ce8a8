"""Kafka's codecs, there and back, and what must not come out."""

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.log.batches.codecs import UndecodableRecords, compress, decompress
from tests.support.record_batches import xerial

RECORDS = b"some records, " * 10_000


@given(st.sampled_from(range(5)), st.binary(max_size=3000), st.integers(1, 40))
def test_what_was_compressed_comes_back(codec: int, piece: bytes, times: int) -> None:
    records = piece * times
    assert decompress(codec, compress(codec, records), len(records)) == records


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_would_grow_beyond_the_limit_is_refused(codec: int) -> None:
    bomb = compress(codec, bytes(4 << 20))
    assert len(bomb) < 1 << 18
    with pytest.raises(UndecodableRecords, match="decompress"):
        decompress(codec, bomb, (4 << 20) - 1)
    assert len(decompress(codec, bomb, 4 << 20)) == 4 << 20


def test_blocks_of_snappy_share_the_limit() -> None:
    with pytest.raises(UndecodableRecords):
        decompress(2, xerial(RECORDS), len(RECORDS) - 1)


def test_snappy_is_read_without_javas_framing() -> None:
    raw = bytes(cramjam.snappy.compress_raw(RECORDS))
    assert decompress(2, raw, len(RECORDS)) == RECORDS


def test_lz4_is_an_ordinary_frame() -> None:
    for records in (RECORDS, b"", bytes(range(256)) * 40_000):
        assert bytes(cramjam.lz4.decompress(compress(3, records))) == records


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5])
def test_what_is_damaged_or_unknown_is_refused(codec: int) -> None:
    with pytest.raises(UndecodableRecords):
        decompress(codec, b"\xff" * 40, 1 << 20)
    with pytest.raises(UndecodableRecords):
        decompress(codec, compress(min(codec, 4), RECORDS)[:-9], 1 << 20)
