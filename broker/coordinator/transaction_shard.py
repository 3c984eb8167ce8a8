"""The transactional ids of one partition of __transaction_state, while this broker leads it.

What is in the log is in force, with one exception. Once all its markers are committed, a
transaction is complete before the log says so: its producer may go on at once. Should this broker
fail now, the next one sends the markers again, and nothing has been written since: for that the log
would have to say that the producer's next transaction has begun.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from broker.coordinator.appends import Appends
from broker.coordinator.led_shards import LedLog
from broker.coordinator.log_entries import LogBatch, LogRecord
from broker.coordinator.markers import MarkerSender
from broker.coordinator.record_fields import UnknownRecord
from broker.coordinator.transactions import decisions, log_format
from broker.coordinator.transactions.decisions import Done, NeedsProducerId, Refused, Write
from broker.coordinator.transactions.transaction import (
    ProducerEpoch,
    Transaction,
    TransactionState,
)
from broker.errors import KafkaError, error_name
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
"""Between attempts to complete what is decided."""

_LOOKED_AT_ONCE: Final = 1_000
"""Transactional ids, before others get their turn."""

_COMPLETION_DELAY_S: Final = 0.1
"""Until the log is told that a transaction is complete: a producer that goes on by then saves it
the record, every third of its transaction's."""

_PATIENCE_S: Final = 0.1
"""How long a producer that goes on is kept waiting for its transaction before to be complete; it
would ask again as soon as it is told CONCURRENT_TRANSACTIONS."""

_TOLD_AT_ONCE: Final = frozenset(
    {errors_pb2.INVALID_PRODUCER_ID_MAPPING, errors_pb2.PRODUCER_FENCED}
)


@dataclass(slots=True)
class _Known:
    """``transaction`` is in force; None: nothing yet. ``is_busy``: its next state is being written,
    and nobody knows which of them will be."""

    transactional_id: str
    transaction: Transaction | None = None
    is_busy: bool = False
    settled: asyncio.Event | None = None
    """Of those who wait until nothing is to be completed any more."""


class TransactionShard:
    """Loads, answers, completes what is decided, and ends when the leadership does."""

    def __init__(
        self,
        name: str,
        log: LedLog,
        *,
        markers: MarkerSender,
        new_producer_id: Callable[[], Awaitable[int]],
        wall_ms: Callable[[], int],
    ) -> None:
        self.is_loading = True
        self.name = name
        self._log = log
        self._coordinator_epoch = log.leader_epoch
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._wall_ms = wall_ms
        self._appends = Appends(log)
        self._known: dict[str, _Known] = {}
        self._open: dict[str, _Known] = {}
        """Those whose time may run out."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    # -- life ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """As ``led_shards.Shard.load``; then goes on with what was decided before."""
        kept: dict[str, Transaction] = {}
        async for entry in self._log.replay():
            for record in entry.records if isinstance(entry, LogBatch) else ():
                self._replay(record, entry.place, kept)
        if self._is_over:
            return
        self._known = {name: _Known(name, transaction) for name, transaction in kept.items()}
        self.is_loading = False
        _log.info("%s: coordinator of %d transactional ids", self.name, len(kept))
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
            _log.warning("%s: a record at offset %d is passed over: %s", self.name, place, error)

    def end(self, error_code: int) -> None:
        """As ``led_shards.Shard.end``. Whoever leads next goes on with what is decided."""
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        self._appends.end(error_code)

    # -- requests --------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerEpoch | None
    ) -> ProducerEpoch:
        """As ``decisions.init_producer``; what the producer is from now on.

        Raises:
            KafkaError: it is not to go on, or to ask again.
        """
        await self._settle(transactional_id)
        new_producer_id: int | None = None
        while True:
            known = self._known.get(transactional_id) or _Known(transactional_id)
            if known.is_busy:
                raise _refusal(transactional_id, errors_pb2.CONCURRENT_TRANSACTIONS)
            decision = decisions.init_producer(
                known.transaction, expected, timeout_ms, self._wall_ms(), new_producer_id
            )
            if not isinstance(decision, NeedsProducerId):
                break
            new_producer_id = await self._new_producer_id()
        self._known[transactional_id] = known
        code = await self._carry_out(known, decision)
        if code or not isinstance(decision, Write):
            raise _refusal(transactional_id, code)
        return ProducerEpoch(decision.transaction.producer_id, decision.transaction.epoch)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> int:
        """As ``decisions.add_partitions``; an error code."""
        await self._settle(transactional_id)
        found = self._known.get(transactional_id)
        transaction = None if found is None else found.transaction
        decision = decisions.add_partitions(transaction, producer, partitions, self._wall_ms())
        return await self._carry_out(found, decision)

    async def end_transaction(
        self, transactional_id: str, producer: ProducerEpoch, *, commit: bool
    ) -> int:
        """As ``decisions.end``; an error code. Answered once it is decided: markers follow."""
        found = self._known.get(transactional_id)
        transaction = None if found is None else found.transaction
        decision = decisions.end(transaction, producer, self._wall_ms(), commit=commit)
        return await self._carry_out(found, decision)

    async def abort(self, transactional_id: str) -> ProducerEpoch:
        """As ``decisions.abort``; the producer that may write no more.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE: there is nothing to abort;
                CONCURRENT_TRANSACTIONS: its end is decided, or being decided.
        """
        known = self._known.get(transactional_id)
        found = None if known is None else known.transaction
        decision = decisions.abort(found, self._wall_ms())
        code = decision.code if found is None else await self._carry_out(known, decision)
        if code or found is None:
            raise KafkaError(
                code,
                f"the transaction of {transactional_id!r} was not aborted: "
                f"{'nobody knows the id' if found is None else f'it is {found.state.title}'}",
            )
        return ProducerEpoch(found.producer_id, found.epoch)

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """As ``decisions.verify``."""
        return decisions.verify(self.transaction(transactional_id), producer, partitions)

    # -- looking ---------------------------------------------------------------------------------

    def transaction(self, transactional_id: str) -> Transaction | None:
        """What is in force; None: nobody knows the id."""
        known = self._known.get(transactional_id)
        return None if known is None else known.transaction

    def __iter__(self) -> Iterator[tuple[str, Transaction]]:
        for known in tuple(self._known.values()):
            if known.transaction is not None:
                yield known.transactional_id, known.transaction

    # -- time ------------------------------------------------------------------------------------

    def abort_overdue(self) -> int:
        """Have what has been open for too long aborted; how many those are."""
        now_ms = self._wall_ms()
        aborted = 0
        for known in tuple(self._open.values()):
            if known.transaction is None or known.is_busy:
                continue
            decision = decisions.time_out(known.transaction, now_ms)
            if decision is not None:
                _log.warning(
                    "%s: transaction of %s, open for %d ms, is aborted: longer than its producer's "
                    "transaction.timeout.ms of %d",
                    self.name,
                    known.transactional_id,
                    now_ms - known.transaction.started_ms,
                    known.transaction.timeout_ms,
                )
                self._write(known, decision.transaction)
                aborted += 1
        return aborted

    async def forget_expired(self, expiration_ms: int) -> None:
        """Forget, durably, ids that nobody has used for so long."""
        now_ms = self._wall_ms()
        ids = tuple(self._known.values())
        for begin in range(0, len(ids), _LOOKED_AT_ONCE):
            outcomes = [
                self._write(known, None)
                for known in ids[begin : begin + _LOOKED_AT_ONCE]
                if known.transaction is not None
                and not known.is_busy
                and decisions.is_expired(known.transaction, expiration_ms, now_ms)
            ]
            await asyncio.gather(asyncio.sleep(0), *map(_code_of, outcomes))

    # -- carrying out ----------------------------------------------------------------------------

    async def _carry_out(self, known: _Known | None, decision: Refused | Done | Write) -> int:
        """An error code, once what was decided is in the log.

        While another state is being written nobody can tell what a request would find; but a
        stranger will be one in either.
        """
        if self._is_over:
            return errors_pb2.NOT_COORDINATOR
        if isinstance(decision, Refused) and decision.code in _TOLD_AT_ONCE:
            return decision.code
        if known is None or known.is_busy:
            return errors_pb2.CONCURRENT_TRANSACTIONS
        match decision:
            case Refused(code):
                return code
            case Done():
                return errors_pb2.NONE
            case Write(transaction, code):
                return await _code_of(self._write(known, transaction)) or code

    def _write(self, known: _Known, transaction: Transaction | None) -> "asyncio.Future[int]":
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
        self, known: _Known, transaction: Transaction | None, outcome: "asyncio.Future[int]"
    ) -> None:
        known.is_busy = False
        error = outcome.exception()
        if self._is_over:
            return
        if error is None:
            known.transaction = transaction
            self._go_on(known)
        else:
            _log.warning("%s: %s was not written: %s", self.name, known.transactional_id, error)
        if known.transaction is None:
            self._known.pop(known.transactional_id, None)

    def _go_on(self, known: _Known) -> None:
        """Another state is in force. What is decided is completed, for as long as it takes."""
        if known.transaction is not None and known.transaction.state is TransactionState.ONGOING:
            self._open[known.transactional_id] = known
        else:
            self._open.pop(known.transactional_id, None)
        if known.transaction is None or not known.transaction.is_prepared:
            if known.settled is not None:
                known.settled.set()
                known.settled = None
            return
        self._spawn(self._complete(known, known.transaction))

    async def _complete(self, known: _Known, prepared: Transaction) -> None:
        try:
            await self._send_markers(known.transactional_id, prepared)
        except KafkaError as error:
            # Whoever ends it now knows more than is known here.
            _log.error("%s: %s is not ended here: %s", self.name, known.transactional_id, error)
            return
        complete = decisions.complete(prepared, self._wall_ms()).transaction
        known.transaction = complete
        self._go_on(known)
        await asyncio.sleep(_COMPLETION_DELAY_S)
        while known.transaction is complete and not known.is_busy:
            # Whatever is written next says the same, and more.
            outcome = self._append(known.transactional_id, complete)
            if not await _code_of(outcome):
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

    async def _settle(self, transactional_id: str) -> None:
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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _code_of(outcome: "asyncio.Future[int]") -> int:
    """Whoever asks may go away; what is on its way to the log goes on."""
    try:
        await asyncio.shield(outcome)
    except KafkaError as error:
        return error.code
    return errors_pb2.NONE


def _refusal(transactional_id: str, code: int) -> KafkaError:
    return KafkaError(code, f"transactional id {transactional_id!r}: {error_name(code)}")
