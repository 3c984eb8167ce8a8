"""The transactional ids of one partition of __transaction_state, while this broker leads it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from typing import Final

from broker.coordinator.appends import code_of
from broker.coordinator.led_shards import LedLog
from broker.coordinator.markers import MarkerSender
from broker.coordinator.transaction_states import KnownId, TransactionStates
from broker.coordinator.transactions import decisions
from broker.coordinator.transactions.decisions import Done, NeedsProducerId, Refused, Write
from broker.coordinator.transactions.transaction import (
    ProducerEpoch,
    Transaction,
)
from broker.errors import KafkaError, error_name
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_LOOKED_AT_ONCE: Final = 1_000
"""Transactional ids, before others get their turn."""

_TOLD_AT_ONCE: Final = frozenset(
    {errors_pb2.INVALID_PRODUCER_ID_MAPPING, errors_pb2.PRODUCER_FENCED}
)


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
        self._states = TransactionStates(name, log, markers, wall_ms)
        self._new_producer_id = new_producer_id
        self._wall_ms = wall_ms

    # -- life ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """As ``led_shards.Shard.load``."""
        await self._states.load()
        self.is_loading = self._states.is_over

    def end(self, error_code: int) -> None:
        """As ``led_shards.Shard.end``."""
        self._states.end(error_code)

    # -- requests --------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerEpoch | None
    ) -> ProducerEpoch:
        """As ``decisions.init_producer``; what the producer is from now on.

        Raises:
            KafkaError: it is not to go on, or to ask again.
        """
        await self._states.settle(transactional_id)
        new_producer_id: int | None = None
        while True:
            known = self._states.get(transactional_id) or KnownId(transactional_id)
            if known.is_busy:
                raise _refusal(transactional_id, errors_pb2.CONCURRENT_TRANSACTIONS)
            decision = decisions.init_producer(
                known.transaction, expected, timeout_ms, self._wall_ms(), new_producer_id
            )
            if not isinstance(decision, NeedsProducerId):
                break
            new_producer_id = await self._new_producer_id()
        self._states.add(known)
        code = await self._carry_out(known, decision)
        if code or not isinstance(decision, Write):
            raise _refusal(transactional_id, code)
        return ProducerEpoch(decision.transaction.producer_id, decision.transaction.epoch)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> int:
        """As ``decisions.add_partitions``; an error code."""
        await self._states.settle(transactional_id)
        found = self._states.get(transactional_id)
        transaction = None if found is None else found.transaction
        decision = decisions.add_partitions(transaction, producer, partitions, self._wall_ms())
        return await self._carry_out(found, decision)

    async def end_transaction(
        self, transactional_id: str, producer: ProducerEpoch, *, commit: bool
    ) -> int:
        """As ``decisions.end``; an error code. Answered once it is decided: markers follow."""
        found = self._states.get(transactional_id)
        transaction = None if found is None else found.transaction
        decision = decisions.end(transaction, producer, self._wall_ms(), commit=commit)
        return await self._carry_out(found, decision)

    async def abort(self, transactional_id: str) -> ProducerEpoch:
        """As ``decisions.abort``; the producer that may write no more.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE: there is nothing to abort;
                CONCURRENT_TRANSACTIONS: its end is decided, or being decided.
        """
        known = self._states.get(transactional_id)
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
        known = self._states.get(transactional_id)
        return None if known is None else known.transaction

    def __iter__(self) -> Iterator[tuple[str, Transaction]]:
        for known in self._states:
            if known.transaction is not None:
                yield known.transactional_id, known.transaction

    # -- time ------------------------------------------------------------------------------------

    def abort_overdue(self) -> int:
        """Have what has been open for too long aborted; how many those are."""
        now_ms = self._wall_ms()
        aborted = 0
        for known in self._states.open():
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
                self._states.write(known, decision.transaction)
                aborted += 1
        return aborted

    async def forget_expired(self, expiration_ms: int) -> None:
        """Forget, durably, ids that nobody has used for so long."""
        now_ms = self._wall_ms()
        ids = tuple(self._states)
        for begin in range(0, len(ids), _LOOKED_AT_ONCE):
            outcomes = [
                self._states.write(known, None)
                for known in ids[begin : begin + _LOOKED_AT_ONCE]
                if known.transaction is not None
                and not known.is_busy
                and decisions.is_expired(known.transaction, expiration_ms, now_ms)
            ]
            await asyncio.gather(asyncio.sleep(0), *map(code_of, outcomes))

    # -- carrying out ----------------------------------------------------------------------------

    async def _carry_out(self, known: KnownId | None, decision: Refused | Done | Write) -> int:
        """An error code, once what was decided is in the log.

        While another state is being written nobody can tell what a request would find; but a
        stranger will be one in either.
        """
        if not self._states.is_sure:  # It may have waited since it was asked.
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
                return await code_of(self._states.write(known, transaction)) or code


def _refusal(transactional_id: str, code: int) -> KafkaError:
    return KafkaError(code, f"transactional id {transactional_id!r}: {error_name(code)}")
