"""Finds the schemas that keys and values name, in topics that want them to (KIP-467 for refusals).

A key or value names its schema as Confluent's serializers write it: a zero byte, then the id in
four bytes. A null names none, and is fine: it is a tombstone, or a record without a key.

Whether a registry has the ids is not known here.
Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/
"""

import time
from collections.abc import Collection
from typing import Final, NamedTuple

from quorate.broker.common.errors import InvalidRecords, KafkaError, RecordError
from quorate.broker.log.batches.record_batch import Where
from quorate_proto.v1 import errors_pb2

PREFIX_BYTES: Final = 5
RECORDS_MAX: Final = 200_000
"""The most records of a request to a partition. They are looked at in Python, a few hundred
thousand a second."""
IDS_MAX: Final = 10_000
"""The most schemas that they name: the registry is asked about each."""
SLICE_RECORDS: Final = 500
"""After so many records, other threads get their turn: the event loop is one of them."""
LISTED_MAX: Final = 500
"""The number of records that a refusal lists, as for other reasons (`record_walk.layout`)."""


class NamedParts(NamedTuple):
    """The parts of records that must name a schema."""

    keys: bool = False
    values: bool = False


class SchemaNames:
    """The schemas that the records of one produce to one partition name."""

    def __init__(self, parts: NamedParts) -> None:
        self.ids: dict[int, list[int]] = {}
        """The places of the first records that name a schema, by its id."""
        self._parts = parts
        self._unnamed: list[RecordError] = []
        self._count = 0

    def look(self, records: memoryview, begin: int, count: int, where: Where) -> None:
        """Look at the next batch: well-formed records that are not compressed.

        Raises:
            KafkaError: MESSAGE_TOO_LARGE, there are too many of them.
        """
        if self._count + count > RECORDS_MAX or len(self.ids) > IDS_MAX:
            raise KafkaError(
                errors_pb2.MESSAGE_TOO_LARGE,
                f"{where}: a request has {self._count + count} records that name "
                f"{len(self.ids)} schemas; where schemas are validated, {RECORDS_MAX} records and "
                f"{IDS_MAX} schemas are allowed; send smaller batches",
            )
        content = bytes(records[begin:])
        at = 0
        for place in range(self._count, self._count + count):
            if place % SLICE_RECORDS == 0:
                time.sleep(0)
            at = self._step_over(content, at, place)
        self._count += count

    def refusal(self, unknown: Collection[int], where: Where) -> InvalidRecords | None:
        """Return the refusal of these records, or None.

        Args:
            unknown: ids that no schema has.
            where: names the partition in the message.
        """
        errors = list(self._unnamed)
        for schema_id in unknown:
            problem = f"schema id {schema_id} is not in the schema registry"
            errors += [RecordError(place, problem) for place in self.ids[schema_id]]
        if not errors:
            return None
        errors.sort()
        return InvalidRecords(
            errors_pb2.INVALID_RECORD,
            f"{where}: records are refused because of their schemas; record {errors[0].place}: "
            f"{errors[0].message}",
            errors[:LISTED_MAX],
        )

    def _step_over(self, records: bytes, at: int, place: int) -> int:
        """Note the schemas of the record that begins at ``at``, and return its end."""
        length, at = _varint(records, at)
        end = at + length
        at = _behind_varint(records, _behind_varint(records, at + 1))
        size, at = _varint(records, at)
        if self._parts.keys and size >= 0:
            self._note("key", records, at, size, place)
        if self._parts.values:
            size, at = _varint(records, at + max(size, 0))
            if size >= 0:
                self._note("value", records, at, size, place)
        return end

    def _note(self, part: str, records: bytes, at: int, size: int, place: int) -> None:
        if size >= PREFIX_BYTES and records[at] == 0:
            schema_id = int.from_bytes(records[at + 1 : at + PREFIX_BYTES], "big")
            places = self.ids.get(schema_id)
            if places is None:
                self.ids[schema_id] = [place]
            elif len(places) < LISTED_MAX:
                places.append(place)
        elif len(self._unnamed) < LISTED_MAX:
            found = f"begins with byte {records[at]}" if size else "is empty"
            if size and records[at] == 0:
                found = f"has {size} bytes"
            problem = f"the {part} names no schema: it {found}; a zero byte and the id come first"
            self._unnamed.append(RecordError(place, problem))


def _behind_varint(records: bytes, at: int) -> int:
    """Return the position behind a varint that is well-formed."""
    while records[at] >= 0x80:
        at += 1
    return at + 1


def _varint(records: bytes, at: int) -> tuple[int, int]:
    """Return a varint that is well-formed, and the position behind it."""
    raw = records[at]
    at += 1
    if raw >= 0x80:
        raw &= 0x7F
        shift = 7
        while True:
            byte = records[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    return (raw >> 1) ^ -(raw & 1), at
