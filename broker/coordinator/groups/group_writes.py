"""Writes the records of a group that uses, or has used, the consumer protocol to its log: in order,
until they are there."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_appender import CoordinatorAppender
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate_proto.v1 import errors_pb2

_WRITE_BYTES_MAX: Final = 512 << 10
"""The approximate size of records that are written together; below the limit of a batch."""


class GroupWrites:
    """The writes of one group.

    A group goes on from what it has decided, whether or not the log takes it. What the log does not
    take, or may not have, is written again with what comes next: a record says the whole state of
    its key, so only the newest of a key matters.
    """

    def __init__(self, appends: CoordinatorAppender) -> None:
        self._appends = appends
        self._newest: dict[bytes, int] = {}
        """The number of the last write with each key, among those whose outcome is open."""
        self._number = 0
        self._missing: dict[bytes, LogRecord] = {}
        """What the log lacks, or may lack."""
        self._last: asyncio.Future[int] | None = None
        self._refusal: KafkaError | None = None
        """Why the log did not take what is missing."""

    def write(self, records: Sequence[LogRecord]) -> None:
        """Write records behind those that were written before."""
        for part in _parts(self._with_missing(records)):
            self._write(part)

    def write_together(self, records: Sequence[LogRecord]) -> "asyncio.Future[int]":
        """Write records in one batch, so that the log has all of them or none; the future gives
        its offset."""
        return self._write(self._with_missing(records))

    def _with_missing(self, records: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Return the records behind what the log lacks, except what they replace."""
        if not self._missing:
            return records
        newer = {record.key for record in records}
        again = [record for key, record in self._missing.items() if key not in newer]
        self._missing.clear()
        return [*again, *records]

    def _write(self, records: Sequence[LogRecord]) -> "asyncio.Future[int]":
        self._number += 1
        self._newest.update(dict.fromkeys((record.key for record in records), self._number))
        outcome = self._appends.append(records)
        outcome.add_done_callback(partial(self._written, self._number, records))
        self._last = outcome
        return outcome

    async def until_written(self) -> None:
        """Return when everything that was written before is committed.

        Raises:
            KafkaError: something is not, or may not be.
        """
        if self._missing:
            self.write(())
        last = self._last
        if last is None:
            return
        await asyncio.shield(last)
        if self._missing:
            raise self._refusal or KafkaError(
                errors_pb2.COORDINATOR_NOT_AVAILABLE, "the log did not take the group's records"
            )

    def _written(
        self, number: int, records: Sequence[LogRecord], outcome: "asyncio.Future[int]"
    ) -> None:
        error = None if outcome.cancelled() else outcome.exception()
        failed = outcome.cancelled() or error is not None
        if isinstance(error, KafkaError):
            self._refusal = error
        for record in records:
            if self._newest.get(record.key) == number:
                del self._newest[record.key]
                if failed:
                    self._missing[record.key] = record
        if outcome is self._last and not failed:
            self._last = None


def _parts(records: Iterable[LogRecord]) -> Iterator[list[LogRecord]]:
    part: list[LogRecord] = []
    size = 0
    for record in records:
        if part and size + record.size > _WRITE_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(record)
        size += record.size
    if part:
        yield part
