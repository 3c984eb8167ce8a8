"""What is in force of each transactional id of one partition: in the log, and completed.

What is in the log is in force, with one exception. Once all its markers are committed, a
transaction is complete before the log says so: its producer may go on at once. Should this broker
fail now, the next one sends the markers again, and nothing has been written since: for that the log
would have to say that the producer's next transaction has begun.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.background_tasks import BackgroundTasks
from broker.coordinator.appends import Appends, code_of
from broker.coordinator.led_shards import LedLog
from broker.coordinator.log_entries import LogBatch, LogRecord
from broker.coordinator.markers import MarkerSender
from broker.coordinator.record_fields import UnknownRecord
from broker.coordinator.transactions import decisions, log_format
from broker.coordinator.transactions.transaction import Transaction, TransactionState
from broker.errors import KafkaError

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
"""Between attempts to complete what is decided."""

_COMPLETION_DELAY_S: Final = 0.1
"""Until the log is told that a transaction is complete: a producer that goes on by then saves it
the record, every third of its transaction's."""

_PATIENCE_S: Final = 1.0
"""How long a producer that goes on is kept waiting for its transaction before to be complete. Told
CONCURRENT_TRANSACTIONS it would ask again, after a pause of 20 to 100 ms: on busy brokers markers
take longer than that."""


@dataclass(slots=True)
class KnownId:
    """``transaction`` is in force; None: nothing yet. ``is_busy``: its next state is being written,
    and nobody knows which of them will be."""

    transactional_id: str
    transaction: Transaction | None = None
    is_busy: bool = False
    settled: asyncio.Event | None = None
    """Of those who wait until nothing is to be completed any more."""


class TransactionStates:
    """Loads, writes, and completes what is decided, until the leadership ends."""

    def __init__(
        self, name: str, log: LedLog, markers: MarkerSender, wall_ms: Callable[[], int]
    ) -> None:
        self.is_over = False
        self._name = name
        self._log = log
        self._coordinator_epoch = log.leader_epoch
        self._markers = markers
        self._wall_ms = wall_ms
        self._appends = Appends(log)
        self._known: dict[str, KnownId] = {}
        self._open: dict[str, KnownId] = {}
        self._tasks = BackgroundTasks()

    @property
    def is_sure(self) -> bool:
        """Whether what is known here can be spoken of: nobody else can have begun to lead."""
        return not self.is_over and self._log.is_surely_led

    def get(self, transactional_id: str) -> KnownId | None:
        return self._known.get(transactional_id)

    def add(self, known: KnownId) -> None:
        """One that is about to be written for the first time."""
        self._known[known.transactional_id] = known

    def __iter__(self) -> Iterator[KnownId]:
        """As they are now."""
        return iter(tuple(self._known.values()))

    def open(self) -> Iterator[KnownId]:
        """Those whose time may run out."""
        return iter(tuple(self._open.values()))

    async def load(self) -> None:
        """Read the log, then go on with what was decided before."""
        kept: dict[str, Transaction] = {}
        async for entry in self._log.replay():
            for record in entry.records if isinstance(entry, LogBatch) else ():
                self._replay(record, entry.place, kept)
        if self.is_over:
            return
        self._known = {name: KnownId(name, transaction) for name, transaction in kept.items()}
        _log.info("%s: coordinator of %d transactional ids", self._name, len(kept))
        for known in self._known.values():
            self._go_on(known)

    def _replay(self, record: LogRecord, place: int, kept: dict[str, Transaction]) -> None:
        try:
            transactional_id = log_format.decode_key(record.key)
            if record.value is None:
                kept.pop(transactional_id, None)
            else:
                kept[transactional_id] = log_format.decode(record.value)
        except UnknownRecord as error:
            _log.warning("%s: a record at offset %d is passed over: %s", self._name, place, error)

    def end(self, error_code: int) -> None:
        """Whoever leads next goes on with what is decided."""
        self.is_over = True
        for known in self._known.values():
            _let_go_on(known)
        self._tasks.cancel()
        self._appends.end(error_code)

    def write(self, known: KnownId, transaction: Transaction | None) -> "asyncio.Future[int]":
        """Have it in the log, then in force, even if whoever asked is gone. None: a tombstone."""
        known.is_busy = True
        outcome = self._append(known.transactional_id, transaction)
        outcome.add_done_callback(partial(self._written, known, transaction))
        return outcome

    def _append(
        self, transactional_id: str, transaction: Transaction | None
    ) -> "asyncio.Future[int]":
        value = None if transaction is None else log_format.encode(transaction)
        return self._appends.append([LogRecord(log_format.encode_key(transactional_id), value)])

    def _written(
        self, known: KnownId, transaction: Transaction | None, outcome: "asyncio.Future[int]"
    ) -> None:
        known.is_busy = False
        error = outcome.exception()
        if self.is_over:
            return
        if error is None:
            known.transaction = transaction
            self._go_on(known)
        else:
            _log.info("%s: %s was not written: %s", self._name, known.transactional_id, error)
        if known.transaction is None:
            self._known.pop(known.transactional_id, None)

    def _go_on(self, known: KnownId) -> None:
        """Another state is in force. What is decided is completed, for as long as it takes."""
        if known.transaction is not None and known.transaction.state is TransactionState.ONGOING:
            self._open[known.transactional_id] = known
        else:
            self._open.pop(known.transactional_id, None)
        if known.transaction is None or not known.transaction.is_prepared:
            _let_go_on(known)
            return
        self._tasks.start(self._complete(known, known.transaction))

    async def _complete(self, known: KnownId, prepared: Transaction) -> None:
        try:
            await self._send_markers(known.transactional_id, prepared)
        except KafkaError as error:
            # Whoever ends it now knows more than is known here.
            _log.error("%s: %s is not ended here: %s", self._name, known.transactional_id, error)
            return
        complete = decisions.complete(prepared, self._wall_ms()).transaction
        known.transaction = complete
        self._go_on(known)
        await asyncio.sleep(_COMPLETION_DELAY_S)
        while known.transaction is complete and not known.is_busy:
            # Whatever is written next says the same, and more.
            outcome = self._append(known.transactional_id, complete)
            if not await code_of(outcome):
                return
            await asyncio.sleep(_RETRY_S)

    async def _send_markers(self, transactional_id: str, transaction: Transaction) -> None:
        """Raises: KafkaError: as ``MarkerSender.send``."""
        missing = set(transaction.partitions)
        while missing:
            missing -= await self._markers.send(
                transactional_id,
                self._coordinator_epoch,
                transaction.producer_id,
                transaction.epoch,
                transaction.is_commit,
                missing,
            )
            if missing:
                await asyncio.sleep(_RETRY_S)

    async def settle(self, transactional_id: str) -> None:
        """Give what is decided a moment to become complete."""
        known = self._known.get(transactional_id)
        if known is None or known.transaction is None or not known.transaction.is_prepared:
            return
        if known.settled is None:
            known.settled = asyncio.Event()
        try:
            await asyncio.wait_for(known.settled.wait(), _PATIENCE_S)
        except TimeoutError:
            return


def _let_go_on(known: KnownId) -> None:
    """Whoever waits for its transaction before has waited enough."""
    if known.settled is not None:
        known.settled.set()
        known.settled = None
