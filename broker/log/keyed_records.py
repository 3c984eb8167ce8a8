"""What a compacted log asks of a producer's records: a key each, so that newer ones replace them.

This is the one place where an append looks at single records, on the event loop, so what one batch
may hold is bounded.
"""

from typing import Final

from broker.errors import InvalidRecords, KafkaError, RecordError
from broker.log.codecs import UndecodableRecords
from broker.log.record_batch import Batch, BatchHeader
from broker.log.records import plain_records, walk
from quorate_proto.v1 import errors_pb2

MOST_RECORDS: Final = 100_000
"""A tenth of a second of the event loop's; clients send 10,000 at most unless told otherwise."""
MOST_BYTES: Final = 64 << 20
"""Decompressed."""
_NO_KEY: Final = "no key, which a compacted topic needs"


def check_keys(batches: list[Batch], where: str) -> None:
    """Refuse batches that a compacted log could not clean; ``where`` names the partition.

    Raises:
        InvalidRecords: INVALID_RECORD; names the records without a key.
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
    """Places of the batch's records without a key; ``before``: how many others came before it."""
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
