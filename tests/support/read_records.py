"""The records of batches as aiokafka reads them: a reader that is not ours."""

from aiokafka.record.default_records import DefaultRecordBatch

from quorate.broker.log.batches.record_batch import iterate_batches
from tests.support.record_batches import Record


def read_records(batches: bytes) -> list[Record]:
    """Every record in ``batches``, in order; checks each checksum and count."""
    found: list[Record] = []
    for header, data in iterate_batches(batches, "test"):
        batch = DefaultRecordBatch(bytearray(data))
        assert batch.validate_crc()
        before = len(found)
        found += [
            Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
            for one in batch
        ]
        assert len(found) - before == header.record_count
    return found
