"""What a compacted log takes of a producer."""

from pathlib import Path

import pytest

from quorate.broker.common.errors import InvalidRecords, KafkaError
from quorate.broker.log.batches.keyed_records import MOST_BYTES, MOST_RECORDS
from quorate.broker.log.batches.record_batch import HEADER_BYTES
from quorate_proto.v1 import errors_pb2
from tests.support.log_stores import EPOCH, opened
from tests.support.record_batches import CODECS, Record, assemble, encode_batch


async def refusal_of(folder: Path, records: bytes) -> KafkaError:
    async with opened(folder) as store:
        log = store.create("orders", 3)
        log.needs_keys = True
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(records, EPOCH)
        assert log.log_end_offset == 0
    assert refused.value.code == errors_pb2.INVALID_RECORD
    assert "orders-3" in refused.value.message
    return refused.value


@pytest.mark.parametrize("codec", list(CODECS))
async def test_kip_467_records_without_a_key_are_refused_and_named(
    tmp_path: Path, codec: str
) -> None:
    """By their places among all that were sent, whatever batch they are in."""
    first = [Record(0, key=b"a"), Record(1, key=None)]
    second = [Record(0, key=None), Record(1, key=b""), Record(2, key=None)]
    sent = encode_batch(first, codec=codec) + encode_batch(second, codec=codec)
    refused = await refusal_of(tmp_path, sent)
    assert isinstance(refused, InvalidRecords)
    assert [one.place for one in refused.record_errors] == [1, 2, 4]
    assert "3 of 5 records have no key" in refused.message


async def test_records_with_keys_are_taken(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.needs_keys = True
        records = [Record(0, key=b""), Record(1, key=b"k", value=None)]
        log.append_as_leader(encode_batch(records, codec="lz4"), EPOCH)
        assert log.log_end_offset == 2


async def test_a_log_that_is_not_compacted_takes_what_it_cannot_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        log = store.create()
        log.append_as_leader(assemble(b"\xff", base_offset=0, last_delta=0, count=1), EPOCH)
        assert log.log_end_offset == 1


async def test_what_cannot_be_decoded_is_refused(tmp_path: Path) -> None:
    batch = assemble(b"\xff" * 9, base_offset=0, last_delta=0, count=1)
    assert "cannot be decoded" in (await refusal_of(tmp_path, batch)).message


async def test_offsets_that_are_not_counted_from_nought_are_refused(tmp_path: Path) -> None:
    """They would stand in the map of keys for records that others wrote."""
    body = encode_batch([Record(0, key=b"a"), Record(7, key=b"b")])[HEADER_BYTES:]
    batch = assemble(body, base_offset=0, last_delta=1, count=2)
    assert "offset delta 7" in (await refusal_of(tmp_path, batch)).message


async def test_more_records_than_the_event_loop_has_time_for_are_refused(tmp_path: Path) -> None:
    count = MOST_RECORDS + 1
    batch = assemble(bytes(10), base_offset=0, last_delta=count - 1, count=count)
    assert "send smaller batches" in (await refusal_of(tmp_path, batch)).message


async def test_a_batch_that_grows_without_an_end_is_refused(tmp_path: Path) -> None:
    bomb = encode_batch([Record(0, key=b"a", value=bytes(MOST_BYTES))], codec="zstd")
    assert len(bomb) < 1 << 20
    assert "decompress to more than" in (await refusal_of(tmp_path, bomb)).message
