"""The current metadata of each transactional id of one partition.

The state in the log is the current one, with one exception. Once all its markers are committed, a
transaction counts as complete before the log says so, and its producer may continue at once. If
this broker fails at that moment, the next coordinator sends the markers again. That is safe,
because the producer can have written nothing since: for that the log would have to hold the
beginning of its next transaction.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_appender import CoordinatorAppender, code_of
from quorate.broker.coordinator.shards.coordinator_records import LogBatch, LogRecord, UnknownRecord
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.transactions.marker_sender import MarkerSender
from quorate.broker.coordinator.transactions.state import transaction_decisions as decisions
from quorate.broker.coordinator.transactions.state import transaction_log_format as log_format
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.invariants import BrokenInvariant

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
"""The pause between attempts to complete a decided transaction."""

_COMPLETION_DELAY_S: Final = 0.1
"""The delay before the completion is written to the log. A producer that begins its next
transaction in the meantime makes that record unnecessary, which is one of three records of a
transaction."""

_PATIENCE_S: Final = 1.0
"""The longest time that a producer waits for its previous transaction to be complete. With
CONCURRENT_TRANSACTIONS it would retry after a pause of 20 to 100 ms, and on busy brokers markers
take longer than that."""


@dataclass(slots=True)
class KnownTransactionalId:
    """A transactional id.

    ``transaction`` is its current metadata, None before the first write. ``is_busy`` is true while
    its next state is being written, so that it is unknown which of the two will hold.
    """

    transactional_id: str
    transaction: TransactionMetadata | None = None
    is_busy: bool = False
    settled: asyncio.Event | None = None
    """The event for requests that wait until the transaction is complete, or a write is over."""

    @property
    def is_held(self) -> bool:
        """Return whether requests that change the transaction have to wait."""
        return self.is_busy or (self.transaction is not None and self.transaction.is_prepared)

    def begin_write(self) -> None:
        """Record that the next state is being written."""
        self.is_busy = True

    def end_write(self) -> None:
        """Record that no state is being written any more."""
        self.is_busy = False

    def become(self, transaction: TransactionMetadata | None) -> None:
        """Replace the current metadata.

        Raises:
            BrokenInvariant: it may not follow the current one.
        """
        if transaction is not None and self.transaction is not None:
            transaction.check_follows(self.transactional_id, self.transaction)
        self.transaction = transaction

    async def until_settled(self) -> None:
        """Wait until ``wake_waiting``, which follows the completion of the transaction."""
        if self.settled is None:
            self.settled = asyncio.Event()
        await self.settled.wait()

    def wake_waiting(self) -> None:
        """Wake the requests that wait for the transaction to be complete."""
        if self.settled is not None:
            self.settled.set()
            self.settled = None


class TransactionStates:
    """Loads and writes the metadata, and completes decided transactions, until the leadership
    ends."""

    def __init__(
        self,
        name: str,
        log: LedPartition,
        markers: MarkerSender,
        wall_ms: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        """``transaction_version`` returns the level of the feature that is in force."""
        self.is_over = False
        self._name = name
        self._log = log
        self._coordinator_epoch = log.leader_epoch
        self._markers = markers
        self._wall_ms = wall_ms
        self._transaction_version = transaction_version
        self._appends = CoordinatorAppender(log)
        self._known: dict[str, KnownTransactionalId] = {}
        self._open: dict[str, KnownTransactionalId] = {}
        self._tasks = BackgroundTasks()

    @property
    def is_sure(self) -> bool:
        """Return whether the metadata may be used for answers: no other broker can have become the
        leader."""
        return not self.is_over and self._log.has_valid_lease

    def get(self, transactional_id: str) -> KnownTransactionalId | None:
        return self._known.get(transactional_id)

    def add(self, known: KnownTransactionalId) -> None:
        """Add a transactional id that is about to be written for the first time."""
        self._known[known.transactional_id] = known

    def __iter__(self) -> Iterator[KnownTransactionalId]:
        """Iterate over a copy of the present transactional ids."""
        return iter(tuple(self._known.values()))

    def open(self) -> Iterator[KnownTransactionalId]:
        """Iterate over a copy of the ids with an open transaction, which may time out."""
        return iter(tuple(self._open.values()))

    async def load(self) -> None:
        """Load the log, then continue to complete the decided transactions."""
        kept: dict[str, TransactionMetadata] = {}
        async for entry in self._log.replay():
            for record in entry.records if isinstance(entry, LogBatch) else ():
                self._replay(record, entry.place, kept)
        if self.is_over:
            return
        self._known = {
            name: KnownTransactionalId(name, transaction) for name, transaction in kept.items()
        }
        _log.info("%s: coordinator of %d transactional ids", self._name, len(kept))
        for known in self._known.values():
            self._go_on(known)

    def _replay(self, record: LogRecord, place: int, kept: dict[str, TransactionMetadata]) -> None:
        try:
            transactional_id = log_format.decode_key(record.key)
            if record.value is None:
                kept.pop(transactional_id, None)
            else:
                kept[transactional_id] = log_format.decode(record.value)
        except UnknownRecord as error:
            _log.warning("%s: a record at offset %d is passed over: %s", self._name, place, error)

    def end(self, error_code: int) -> None:
        """End; the next leader continues to complete the decided transactions."""
        self.is_over = True
        for known in self._known.values():
            known.wake_waiting()
        self._tasks.cancel()
        self._appends.end(error_code)

    def write(
        self, known: KnownTransactionalId, transaction: TransactionMetadata | None
    ) -> "asyncio.Future[int]":
        """Write a state, which is current once the log has it, even if the client is gone.

        None writes a tombstone.
        """
        known.begin_write()
        outcome = self._append(known.transactional_id, transaction)
        outcome.add_done_callback(partial(self._written, known, transaction))
        return outcome

    def _append(
        self, transactional_id: str, transaction: TransactionMetadata | None
    ) -> "asyncio.Future[int]":
        tagged = self._transaction_version() >= log_format.TAGGED
        version = log_format.TAGGED if tagged else log_format.PLAIN
        value = None if transaction is None else log_format.encode(transaction, version)
        return self._appends.append([LogRecord(log_format.encode_key(transactional_id), value)])

    def _written(
        self,
        known: KnownTransactionalId,
        transaction: TransactionMetadata | None,
        outcome: "asyncio.Future[int]",
    ) -> None:
        known.end_write()
        error = outcome.exception()
        if self.is_over:
            return
        if error is None:
            if self._becomes(known, transaction):
                self._go_on(known)
        else:
            _log.info("%s: %s was not written: %s", self._name, known.transactional_id, error)
            known.wake_waiting()
        if known.transaction is None:
            self._known.pop(known.transactional_id, None)

    def _becomes(
        self, known: KnownTransactionalId, transaction: TransactionMetadata | None
    ) -> bool:
        """Replace the metadata of an id. Return False if it may not become that: this replica of
        the log is given up, and the next leader loads what is in its own.
        """
        try:
            known.become(transaction)
        except BrokenInvariant as broken:
            self._log.give_up(broken)
            return False
        return True

    def _go_on(self, known: KnownTransactionalId) -> None:
        """Follow a change of state: start to complete a decided transaction, for as long as it
        takes."""
        if known.transaction is not None and known.transaction.state is TransactionState.ONGOING:
            self._open[known.transactional_id] = known
        else:
            self._open.pop(known.transactional_id, None)
        if known.transaction is None or not known.transaction.is_prepared:
            known.wake_waiting()
            return
        self._tasks.start(self._complete(known, known.transaction))

    async def _complete(self, known: KnownTransactionalId, prepared: TransactionMetadata) -> None:
        try:
            await self._send_markers(known.transactional_id, prepared)
        except KafkaError as error:
            # Another coordinator ends the transaction; it has newer information.
            _log.error("%s: %s is not ended here: %s", self._name, known.transactional_id, error)
            return
        complete = decisions.complete(prepared, self._wall_ms()).transaction
        if not self._becomes(known, complete):
            return
        self._go_on(known)
        await asyncio.sleep(_COMPLETION_DELAY_S)
        while known.transaction is complete and not known.is_busy:
            # Any later record of this id contains the same information, and more.
            outcome = self._append(known.transactional_id, complete)
            if not await code_of(outcome):
                return
            await asyncio.sleep(_RETRY_S)

    async def _send_markers(self, transactional_id: str, transaction: TransactionMetadata) -> None:
        """Send markers until all partitions have one.

        Raises:
            KafkaError: as ``MarkerSender.send``.
        """
        missing = set(transaction.partitions)
        while missing:
            missing -= await self._markers.send(
                transactional_id,
                self._coordinator_epoch,
                transaction.producer_id,
                transaction.epoch,
                transaction.is_commit,
                missing,
                transaction.client_version,
            )
            if missing:
                await asyncio.sleep(_RETRY_S)

    async def until_free(self, transactional_id: str, patience_s: float) -> None:
        """Wait for a short time until a request may change the transaction: until no state is being
        written, and what was decided is complete."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + patience_s
        while (known := self._known.get(transactional_id)) is not None and known.is_held:
            try:
                await asyncio.wait_for(known.until_settled(), until_s - loop.time())
            except TimeoutError:
                return

    async def settle(self, transactional_id: str) -> None:
        """Wait for a short time until a decided transaction is complete."""
        known = self._known.get(transactional_id)
        if known is None or known.transaction is None or not known.transaction.is_prepared:
            return
        try:
            await asyncio.wait_for(known.until_settled(), _PATIENCE_S)
        except TimeoutError:
            return
