"""Batches get another codec and stay what they are."""

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.recompression import needs_recompression, recompressed
from quorate.broker.log.batches.record_batch import Batch, iterate_batches
from quorate.broker.log.batches.records import plain_records
from quorate_proto.v1 import errors_pb2
from tests.support.record_batches import CODECS, TRANSACTIONAL, Record, assemble, encode_batch

RECORDS = [Record(n, timestamp_ms=n, key=b"k%d" % n, value=b"v" * 500) for n in range(20)]
MAX_BYTES = 1 << 20


def sent(codec: str, **more: object) -> bytes:
    return encode_batch(
        RECORDS,
        codec=codec,
        producer=(7, 1, 3),
        attributes=TRANSACTIONAL,
        **more,  # type: ignore[arg-type]
    )


def batches(records: bytes | memoryview) -> list[Batch]:
    """Their CRCs are right."""
    return list(iterate_batches(records, "t-0"))


@pytest.mark.parametrize("wanted", list(CODECS))
@pytest.mark.parametrize("came", list(CODECS))
def test_all_but_the_codec_is_as_it_was(came: str, wanted: str) -> None:
    before = sent(came) + sent("none") + sent("zstd")
    codec = CODECS[wanted]
    assert needs_recompression(before, codec)
    recoded = recompressed(batches(before), codec, MAX_BYTES, "t-0")
    after = b"".join(data for _, data in recoded)
    assert not needs_recompression(after, codec)
    assert recoded == batches(after)
    for old, new in zip(batches(before), recoded, strict=True):
        assert new.header.compression == codec
        same = {"length": 0, "crc": 0, "attributes": 0}
        assert new.header._replace(**same) == old.header._replace(**same)
        assert new.header.is_transactional
        assert plain_records(*new) == plain_records(*old)
        assert old.header.compression == codec or not new.data.readonly, "it is put in place"


def test_what_has_the_codec_is_left_alone() -> None:
    assert not needs_recompression(sent("lz4") + sent("lz4"), CODECS["lz4"])
    assert needs_recompression(sent("lz4") + sent("gzip"), CODECS["lz4"])
    mixed = batches(sent("lz4") + sent("gzip"))
    assert recompressed(mixed, CODECS["lz4"], MAX_BYTES, "t-0")[0] is mixed[0]


@pytest.mark.parametrize("junk", [b"", b"\0" * 40, b"\xff" * 100, sent("none")[:-1]])
def test_what_is_no_batch_is_left_to_be_refused(junk: bytes) -> None:
    assert needs_recompression(junk, 3) in (False, True)


def test_an_unknown_codec_is_left_to_be_refused() -> None:
    unknown = assemble(b"x", base_offset=0, last_delta=0, count=1, attributes=6)
    assert not needs_recompression(unknown, 3)


def test_what_gets_too_large_is_refused() -> None:
    plain = len(sent("none"))
    assert recompressed(batches(sent("zstd")), 0, plain, "t-0")
    with pytest.raises(KafkaError) as refused:
        recompressed(batches(sent("zstd")), 0, plain - 1, "t-0")
    assert refused.value.code == errors_pb2.MESSAGE_TOO_LARGE
    assert "t-0" in refused.value.message
