"""Transactions of one client that have no result yet. Pure bookkeeping; exactly once comes from it.

A transaction keeps its sequence through every retry, and is encoded once. The low-water mark it
carries is the lowest sequence that may still be retried: results below it may be forgotten.
"""

import asyncio
import math
from collections.abc import Callable, Iterator

import msgspec

from metadata_log.codec import encode_transaction
from metadata_log.records import Operation, ResultCode, Transaction, TransactionResult
from metadata_log.types import SessionId
from quorum.errors import OutcomeUnknown, SessionLost, TransactionTooLarge


class PendingTransaction(msgspec.Struct, eq=False, gc=False):
    """One transaction on its way."""

    session_id: SessionId
    sequence: int
    encoded: bytes
    future: "asyncio.Future[TransactionResult]"
    timeout_ms: int
    deadline_s: float
    """Clock of the event loop."""
    times_sent: int = 0


class PendingTransactions:
    """In the order of their sequences, which start at 1 and never go back."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingTransaction] = {}
        self._last_sequence = 0
        self._low_water = 1
        self._unsent: list[PendingTransaction] = []

    def add(
        self,
        session_id: SessionId,
        operations: tuple[Operation, ...],
        *,
        atomic: bool,
        timestamp_ms: int,
        future: "asyncio.Future[TransactionResult]",
        timeout_ms: int,
    ) -> PendingTransaction:
        """A new transaction, to be sent; its time runs from now.

        Raises:
            TransactionTooLarge: over 1 MiB when encoded.
        """
        sequence = self._last_sequence + 1
        encoded = encode_transaction(
            Transaction(
                operations=operations,
                atomic=atomic,
                client_id=session_id,
                sequence=sequence,
                low_water=self._lowest_pending(sequence),
                timestamp_ms=timestamp_ms,
                from_client=True,
            )
        )
        if len(encoded) > Transaction.MAX_ENCODED_BYTES:
            raise TransactionTooLarge(
                f"a transaction of {len(operations)} operations has {len(encoded)} bytes, "
                f"{Transaction.MAX_ENCODED_BYTES} at most: split it"
            )
        self._last_sequence = sequence
        deadline_s = future.get_loop().time() + timeout_ms / 1000
        pending = PendingTransaction(session_id, sequence, encoded, future, timeout_ms, deadline_s)
        self._pending[sequence] = pending
        self._unsent.append(pending)
        return pending

    def take_unsent(self, max_bytes: int) -> list[PendingTransaction]:
        """What is to be sent now, about ``max_bytes`` at most; counts as sent."""
        batch: list[PendingTransaction] = []
        taken, size = 0, 0
        for pending in self._unsent:
            if size >= max_bytes:
                break
            taken += 1
            size += len(pending.encoded)
            if not pending.future.done():
                pending.times_sent += 1
                batch.append(pending)
        del self._unsent[:taken]
        return batch

    @property
    def awaits_an_answer(self) -> bool:
        """Something was sent that has no result yet. Cheap: what is oldest was sent first."""
        return any(pending.times_sent for pending in self._pending.values())

    def send_again(self) -> None:
        """The stream broke, or its voter does not lead: send everything that has no result."""
        self._unsent = list(self._pending.values())

    def retry(self, sequence: int) -> None:
        """Send this one again, in its own time."""
        pending = self._pending.get(sequence)
        if pending is not None:
            self._unsent.append(pending)

    def get(self, sequence: int) -> PendingTransaction | None:
        return self._pending.get(sequence)

    def forget(self, sequence: int) -> PendingTransaction | None:
        """Its caller has a result, or gave up."""
        return self._pending.pop(sequence, None)

    def _lowest_pending(self, sequence: int) -> int:
        """The lowest sequence that may still be retried; ``sequence`` is about to be added.

        Looked for from where it was last: the first key of a dictionary is slow to find once many
        keys before it are gone.
        """
        while self._low_water < sequence and self._low_water not in self._pending:
            self._low_water += 1
        return self._low_water

    def expire(self, now_s: float, error: Callable[[PendingTransaction], Exception]) -> float:
        """Give ``error`` to those whose time is over; the deadline that comes next, or infinity."""
        soonest_s = math.inf
        for pending in self:
            if pending.deadline_s > now_s:
                soonest_s = min(soonest_s, pending.deadline_s)
            elif not pending.future.done():
                pending.future.set_exception(error(pending))
        return soonest_s

    def __iter__(self) -> Iterator[PendingTransaction]:
        return iter(list(self._pending.values()))


def settle(pending: PendingTransaction, result: TransactionResult) -> None:
    """Give the caller the result, or the error that it stands for."""
    if pending.future.done():
        return
    error = _error(pending, result)
    if error is None:
        pending.future.set_result(result)
    else:
        pending.future.set_exception(error)


def fail(pending: PendingTransaction, why: str) -> None:
    """The session is gone: nothing more can be found out about this transaction."""
    if pending.future.done():
        return
    if pending.times_sent:
        pending.future.set_exception(OutcomeUnknown(f"{why}; it may have been applied"))
    else:
        pending.future.set_exception(SessionLost(why))


def session_gone(pending: PendingTransaction, result: TransactionResult) -> bool:
    """Whether the whole transaction was refused because the client's own session is closed."""
    own = pending.session_id.hex()
    return bool(result.results) and all(
        item.code is ResultCode.SESSION_GONE and own in item.detail for item in result.results
    )


def _error(pending: PendingTransaction, result: TransactionResult) -> Exception | None:
    if result.results and all(item.code is ResultCode.OUTCOME_UNKNOWN for item in result.results):
        return OutcomeUnknown(result.results[0].detail)
    if session_gone(pending, result):
        why = f"session {pending.session_id.hex()} is closed"
        if pending.times_sent > 1:
            return OutcomeUnknown(f"{why}; an earlier attempt may have been applied")
        return SessionLost(why)
    return None
