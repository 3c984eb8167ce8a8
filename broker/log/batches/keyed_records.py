"""The check of a compacted log that every record has a key, so that newer records can replace older
ones.

No other part of an append decodes single records on the event loop. The size of one batch is
therefore bounded.
"""

from typing import Final

from quorate.broker.common.errors import InvalidRecords, KafkaError, RecordError
from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.record_batch import Batch, BatchHeader
from quorate.broker.log.batches.records import plain_records, walk
from quorate_proto.v1 import errors_pb2

MOST_RECORDS: Final = 100_000
"""The largest number of records of one batch. Checking them takes a tenth of a second on the event
loop; clients send at most 10,000 by default."""
MOST_BYTES: Final = 64 << 20
"""The largest size of the decompressed records of one batch, in bytes."""
_NO_KEY: Final = "no key, which a compacted topic needs"


def check_keys(batches: list[Batch], where: str) -> None:
    """Refuse batches that a compacted log could not clean. ``where`` names the partition in
    messages.

    Raises:
        InvalidRecords: INVALID_RECORD. The error lists the records without a key.
        KafkaError: INVALID_RECORD.
    """
    keyless: list[int] = []
    before = 0
    for header, data in batches:
        if header.record_count > MOST_RECORDS:
            raise _invalid(
                where,
                f"a batch has {header.record_count} records, a compacted topic takes at most "
                f"{MOST_RECORDS}; send smaller batches",
            )
        try:
            keyless += _keyless(header, plain_records(header, data, MOST_BYTES), where, before)
        except UndecodableRecords as error:
            raise _invalid(where, f"a batch cannot be decoded: {error}") from error
        before += header.record_count
    if keyless:
        raise InvalidRecords(
            errors_pb2.INVALID_RECORD,
            f"{where}: {len(keyless)} of {before} records have no key, which a compacted topic "
            f"needs; the first is record {keyless[0]}",
            [RecordError(place, _NO_KEY) for place in keyless],
        )


def _keyless(header: BatchHeader, records: bytes, where: str, before: int) -> list[int]:
    """Return the positions of the records without a key. ``before`` is the number of records in
    earlier batches of the request."""
    found = []
    for place, (_, _, _, _, offset_delta, _, key_length, _) in enumerate(
        walk(records, header.record_count)
    ):
        if offset_delta != place:
            raise _invalid(where, f"record {place} of a batch has offset delta {offset_delta}")
        if key_length < 0:
            found.append(before + place)
    return found


def _invalid(where: str, problem: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_RECORD, f"{where}: {problem}")
