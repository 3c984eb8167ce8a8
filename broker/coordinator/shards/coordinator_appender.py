"""Collects the records for one partition of a coordinator's topic into batches.

All records that are written in one turn of the event loop share one batch, one fsync and one round
of replication.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_records import (
    LogRecord,
    TransactionOwner,
)
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.common.background_tasks import BackgroundTasks
from quorate_proto.v1 import errors_pb2

_MAX_BATCH_BYTES: Final = 512 << 10
"""The approximate size of a batch; well below the default limit of a topic."""


class CoordinatorAppender:
    """Writes records to one partition."""

    def __init__(self, log: LedPartition) -> None:
        self._log = log
        self._gathered: list[_Append] = []
        self._waiting: dict[asyncio.Future[int], None] = {}
        """The pending writes, in the order in which they were requested."""
        self._tasks = BackgroundTasks()

    def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> "asyncio.Future[int]":
        """Write ``records`` together; the future gives their offset in the log, or a KafkaError.

        Records stand in the log in the order of the calls. A batch belongs to one transaction, or
        to none.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[int] = loop.create_future()
        self._waiting[outcome] = None
        outcome.add_done_callback(self._waiting.pop)
        if not self._gathered:
            loop.call_soon(self._flush)
        self._gathered.append(_Append(records, transaction, outcome))
        return outcome

    def end(self, error_code: int) -> None:
        """Stop writing; writes in progress end with ``error_code``, and their outcome stays unknown
        here."""
        self._gathered.clear()
        for outcome in list(self._waiting):
            if not outcome.done():
                outcome.set_exception(KafkaError(error_code, "the log is led elsewhere"))
        self._tasks.cancel()

    def _flush(self) -> None:
        """Write what was collected. Tasks start in the order of their creation, so batches keep
        that order."""
        gathered, self._gathered = self._gathered, []
        group: list[_Append] = []
        size = 0
        for each in gathered:
            more = sum(record.size for record in each.records)
            ends = group and group[0].transaction != each.transaction
            if ends or (group and size + more > _MAX_BATCH_BYTES):
                self._tasks.start(self._write(group))
                group, size = [], 0
            group.append(each)
            size += more
        if group:
            self._tasks.start(self._write(group))

    async def _write(self, group: "list[_Append]") -> None:
        try:
            records = [record for each in group for record in each.records]
            place = await self._log.append(records, group[0].transaction)
        except Exception as error:
            for each in group:
                if not each.outcome.done():
                    each.outcome.set_exception(_as_told(error))
            if not isinstance(error, KafkaError):
                raise
        else:
            for each in group:
                if not each.outcome.done():
                    each.outcome.set_result(place)


async def code_of(outcome: "asyncio.Future[int]") -> int:
    """Return the error code of a write. The write goes on even if the caller is cancelled."""
    try:
        await asyncio.shield(outcome)
    except KafkaError as error:
        return error.code
    return errors_pb2.NONE


def _as_told(error: Exception) -> KafkaError:
    """Turn an unexpected error into a KafkaError, so that no caller waits for ever."""
    if isinstance(error, KafkaError):
        return error
    return KafkaError(errors_pb2.UNKNOWN_SERVER_ERROR, f"the log failed: {error!r}")


class _Append(NamedTuple):
    records: Sequence[LogRecord]
    transaction: TransactionOwner | None
    outcome: "asyncio.Future[int]"
