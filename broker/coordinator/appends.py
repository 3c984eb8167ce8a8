"""Records on their way to one partition of a coordinator's topic: what gathers goes together.

Whoever has something to write in one turn of the event loop shares one batch, one fsync and one
round of replication with all others.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

from broker.background_tasks import BackgroundTasks
from broker.coordinator.log_entries import LogBatch, LogRecord, TransactionEnd, TransactionOwner
from broker.errors import KafkaError
from quorate_proto.v1 import errors_pb2

_MAX_BATCH_BYTES: Final = 512 << 10
"""Records per batch, about; well below what a topic takes by default."""


class CoordinatorLog(Protocol):
    """One partition, while this broker leads it in one epoch."""

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> int:
        """Appended before the first await, in order, but for what may be no part of a transaction;
        returns where, once it is committed.

        Raises:
            KafkaError: not; the code is one that coordinators answer with.
            InDoubt: in the log, and nobody can say yet whether for good.
        """

    def replay(self) -> AsyncIterator[LogBatch | TransactionEnd]:
        """Everything in the log, batch by batch, with its base offset; ends when all of it is
        committed, and nobody may act on it before.
        """


class InDoubt(KafkaError):
    """Appended at offset ``place``, not committed in time: it will be, unless the leader fails."""

    def __init__(self, code: int, message: str, place: int) -> None:
        super().__init__(code, message)
        self.place = place


class Appends:
    """The writing end of one partition."""

    def __init__(self, log: CoordinatorLog) -> None:
        self._log = log
        self._gathered: list[_Append] = []
        self._waiting: dict[asyncio.Future[int], None] = {}
        """In the order in which they were given."""
        self._tasks = BackgroundTasks()

    def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> "asyncio.Future[int]":
        """Have ``records`` written together; where they stand, or the KafkaError that befell them.

        What was given first stands first. A batch is part of one transaction, or of none.
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
        """Nothing more is written; of what is on its way nobody here will know the outcome."""
        self._gathered.clear()
        for outcome in list(self._waiting):
            if not outcome.done():
                outcome.set_exception(KafkaError(error_code, "the log is led elsewhere"))
        self._tasks.cancel()

    def _flush(self) -> None:
        """Tasks begin in the order in which they are started: so do batches stand in the log."""
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
    """Whoever asks may go away; what is on its way to the log goes on."""
    try:
        await asyncio.shield(outcome)
    except KafkaError as error:
        return error.code
    return errors_pb2.NONE


def _as_told(error: Exception) -> KafkaError:
    """Nobody may wait for ever for what failed in a way that was not foreseen."""
    if isinstance(error, KafkaError):
        return error
    return KafkaError(errors_pb2.UNKNOWN_SERVER_ERROR, f"the log failed: {error!r}")


class _Append(NamedTuple):
    records: Sequence[LogRecord]
    transaction: TransactionOwner | None
    outcome: "asyncio.Future[int]"
