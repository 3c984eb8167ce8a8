"""The transactional ids of one partition of __transaction_state, while this broker leads it."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.coordinator.shards.coordinator_appender import code_of
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.transactions.marker_sender import MarkerSender
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate.broker.coordinator.transactions.state import transaction_decisions as decisions
from quorate.broker.coordinator.transactions.state.ends_in_next_epoch import end_in_next_epoch
from quorate.broker.coordinator.transactions.state.transaction_decisions import (
    Decision,
    Done,
    NeedsProducerId,
    Refused,
    Write,
)
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    TRANSACTIONS_V2,
    ProducerEpoch,
    TransactionMetadata,
)
from quorate.broker.coordinator.transactions.transaction_states import (
    KnownTransactionalId,
    TransactionStates,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_LOOKED_AT_ONCE: Final = 1_000
"""The number of transactional ids that are checked before other tasks get their turn."""

_LEADERS_PATIENCE_S: Final = 0.1
"""The longest wait of a leader that adds a partition for the previous transaction to be complete,
and for the log to have the partitions that other leaders add. Questions about other transactions
may wait with it, so it asks again instead."""

_TOLD_AT_ONCE: Final = frozenset(
    {errors_pb2.INVALID_PRODUCER_ID_MAPPING, errors_pb2.PRODUCER_FENCED}
)


class TransactionShard:
    """Serves the requests about the transactional ids of one partition, until the leadership ends.

    It also completes transactions whose end is decided.
    """

    def __init__(
        self,
        name: str,
        log: LedPartition,
        *,
        markers: MarkerSender,
        producer_ids: ProducerIds,
        wall_ms: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        """``transaction_version`` returns the level of the feature that is in force."""
        self.is_loading = True
        self.name = name
        self._states = TransactionStates(name, log, markers, wall_ms, transaction_version)
        self._transaction_version = transaction_version
        self._producer_ids = producer_ids
        self._wall_ms = wall_ms

    # -- life ------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the transactional ids from the log; see ``CoordinatorShard.load``."""
        await self._states.load()
        self.is_loading = self._states.is_over

    def end(self, error_code: int) -> None:
        """End because the leadership is lost or the broker stops; see ``CoordinatorShard.end``."""
        self._states.end(error_code)

    # -- requests --------------------------------------------------------------------------------

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerEpoch | None
    ) -> ProducerEpoch:
        """Start a producer or let it recover, see ``decisions.init_producer``; return its new id
        and epoch.

        Raises:
            KafkaError: the producer is refused, or has to retry.
        """
        await self._states.settle(transactional_id)
        new_producer_id: int | None = None
        while True:
            known = self._states.get(transactional_id) or KnownTransactionalId(transactional_id)
            if known.is_busy:
                raise _refusal(transactional_id, errors_pb2.CONCURRENT_TRANSACTIONS)
            decision = decisions.init_producer(
                known.transaction, expected, timeout_ms, self._wall_ms(), new_producer_id
            )
            if not isinstance(decision, NeedsProducerId):
                break
            new_producer_id = await self._producer_ids.take()
        self._states.add(known)
        code = await self._carry_out(known, decision)
        if code or not isinstance(decision, Write):
            raise _refusal(transactional_id, code)
        return decision.transaction.producer

    async def add_partitions(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> int:
        """Add partitions to a transaction, see ``decisions.add_partitions``; return an error
        code."""
        await self._states.settle(transactional_id)
        return await self._add(transactional_id, producer, partitions, 0)

    async def add_for_leader(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> int:
        """Add partitions whose leaders got their first batches (transactions v2); return an error
        code."""
        await self._states.until_free(transactional_id, _LEADERS_PATIENCE_S)
        return await self._add(transactional_id, producer, partitions, TRANSACTIONS_V2)

    async def _add(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Set[TopicPartition],
        client_version: int,
    ) -> int:
        found = self._states.get(transactional_id)
        transaction = None if found is None else found.transaction
        decision = decisions.add_partitions(
            transaction, producer, partitions, self._wall_ms(), client_version
        )
        return await self._carry_out(found, decision)

    async def end_transaction(
        self, transactional_id: str, producer: ProducerEpoch, *, commit: bool
    ) -> int:
        """Decide the end of a transaction, see ``decisions.end``; return an error code.

        It returns once the decision is in the log; the markers are sent after that.
        """
        found = self._states.get(transactional_id)
        transaction = None if found is None else found.transaction
        decision = decisions.end(transaction, producer, self._wall_ms(), commit=commit)
        return await self._carry_out(found, decision)

    async def end_in_next_epoch(
        self, transactional_id: str, producer: ProducerEpoch, *, commit: bool
    ) -> ProducerEpoch:
        """Decide the end of a transaction v2, see ``end_in_next_epoch``; return the id and epoch
        with which the producer goes on.

        Raises:
            KafkaError: the end is refused, or has to be asked for again.
        """
        known, decision = await self._decide(
            transactional_id,
            lambda found, new_id: end_in_next_epoch(
                found, producer, self._wall_ms(), commit=commit, new_producer_id=new_id
            ),
        )
        code = await self._carry_out(known, decision)
        if code or isinstance(decision, Refused):
            raise _refusal(transactional_id, code)
        return decision.transaction.next_producer

    async def abort(self, transactional_id: str) -> ProducerEpoch:
        """Abort an open transaction, see ``decisions.abort``; return the producer that is fenced by
        it.

        Raises:
            KafkaError: TRANSACTIONAL_ID_NOT_FOUND, INVALID_TXN_STATE: there is nothing to abort;
                CONCURRENT_TRANSACTIONS: its end is decided, or being decided.
        """
        known, decision = await self._decide(
            transactional_id,
            lambda found, new_id: decisions.abort(
                found,
                self._wall_ms(),
                version=self._transaction_version(),
                new_producer_id=new_id,
            ),
        )
        found = None if known is None else known.transaction
        code = await self._carry_out(known, decision)
        if code or found is None:
            raise KafkaError(
                code if found is not None else errors_pb2.TRANSACTIONAL_ID_NOT_FOUND,
                f"the transaction of {transactional_id!r} was not aborted: "
                f"{'nobody knows the id' if found is None else f'it is {found.state.title}'}",
            )
        return found.producer

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return an error code for each partition; see ``decisions.verify``."""
        return decisions.verify(self.transaction(transactional_id), producer, partitions)

    # -- looking ---------------------------------------------------------------------------------

    def transaction(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the current metadata of a transactional id, or None if it is unknown."""
        known = self._states.get(transactional_id)
        return None if known is None else known.transaction

    def __iter__(self) -> Iterator[tuple[str, TransactionMetadata]]:
        for known in self._states:
            if known.transaction is not None:
                yield known.transactional_id, known.transaction

    # -- time ------------------------------------------------------------------------------------

    async def abort_overdue(self) -> int:
        """Start to abort all transactions that are open for too long; return their number."""
        aborted = 0
        for known in self._states.open():
            try:
                aborted += await self._abort_if_overdue(known)
            except KafkaError as error:
                # A later check tries again.
                _log.info("%s: %s is not aborted yet: %s", self.name, known.transactional_id, error)
        return aborted

    async def _abort_if_overdue(self, known: KnownTransactionalId) -> bool:
        """Start to abort the transaction if its time is up; return whether it is aborted.

        Raises:
            KafkaError: there is no producer id for its producer to go on with.
        """
        now_ms = self._wall_ms()
        version = self._transaction_version()
        _, decision = await self._decide(
            known.transactional_id,
            lambda found, new_id: decisions.time_out(
                found, now_ms, version=version, new_producer_id=new_id
            ),
        )
        if not isinstance(decision, Write) or known.transaction is None or known.is_busy:
            return False
        _log.warning(
            "%s: transaction of %s, open for %d ms, is aborted: longer than its producer's "
            "transaction.timeout.ms of %d",
            self.name,
            known.transactional_id,
            now_ms - known.transaction.started_ms,
            known.transaction.timeout_ms,
        )
        self._states.write(known, decision.transaction)
        return True

    async def forget_expired(self, expiration_ms: int) -> None:
        """Forget, durably, transactional ids that were unused for so long."""
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

    async def _decide(
        self,
        transactional_id: str,
        decide: Callable[[TransactionMetadata | None, int | None], Decision | NeedsProducerId],
    ) -> tuple[KnownTransactionalId | None, Decision]:
        """Decide on the present state, with a new producer id if one is needed.

        Raises:
            KafkaError: the controller gave no producer ids; the code makes clients retry.
        """
        new_producer_id: int | None = None
        while True:
            known = self._states.get(transactional_id)
            found = None if known is None else known.transaction
            decision = decide(found, new_producer_id)
            if not isinstance(decision, NeedsProducerId):
                return known, decision
            new_producer_id = await self._producer_ids.take()

    async def _carry_out(self, known: KnownTransactionalId | None, decision: Decision) -> int:
        """Carry out a decision, and return the error code once the new state is in the log.

        While another state is being written, the state that a request would find is unknown. But a
        producer with a wrong id is refused in both states.
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
