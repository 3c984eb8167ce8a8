"""The transactions of one client that have no result yet. It is pure bookkeeping, for exactly once.

A transaction keeps its sequence through every retry, and is encoded once. It carries the low-water
mark, the lowest sequence that may still be retried: the quorum may forget the results below it.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import msgspec

from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.codec import encode_transaction
from quorate.metadata_log.records import (
    Operation,
    OperationResult,
    ResultCode,
    Transaction,
    TransactionResult,
)
from quorate.quorum.quorum_errors import OutcomeUnknown, SessionLost, TransactionTooLarge
from quorate_proto.v1 import quorum_pb2 as pb


class PendingTransaction(msgspec.Struct, eq=False, gc=False):
    """One transaction without a result."""

    session_id: SessionId
    sequence: int
    encoded: bytes
    future: "asyncio.Future[TransactionResult]"
    timeout_ms: int
    deadline_s: float
    """The deadline on the clock of the event loop."""
    times_sent: int = 0


class PendingTransactions:
    """Transactions in the order of their sequences, which start at 1 and never go back."""

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
        """Add a new transaction, to be sent; its time runs from now.

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
        """Return what is to be sent now, about ``max_bytes`` at most; it counts as sent."""
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
        """Return whether something was sent that has no result yet. It is cheap: the oldest was
        sent first.
        """
        return any(pending.times_sent for pending in self._pending.values())

    def send_again(self) -> None:
        """Mark everything without a result as unsent: the stream broke, or its voter
        does not lead.
        """
        self._unsent = list(self._pending.values())

    def retry(self, sequence: int) -> None:
        """Send this transaction again, in its own time."""
        pending = self._pending.get(sequence)
        if pending is not None:
            self._unsent.append(pending)

    def get(self, sequence: int) -> PendingTransaction | None:
        return self._pending.get(sequence)

    def forget(self, sequence: int) -> PendingTransaction | None:
        """Remove a transaction whose caller has a result, or gave up."""
        return self._pending.pop(sequence, None)

    def _lowest_pending(self, sequence: int) -> int:
        """Return the lowest sequence that may still be retried; ``sequence`` is about to be added.

        The search begins where it last ended: the first key of a dictionary is slow to find once
        many keys before it are gone.
        """
        while self._low_water < sequence and self._low_water not in self._pending:
            self._low_water += 1
        return self._low_water

    def expire(self, now_s: float, error: Callable[[PendingTransaction], Exception]) -> float:
        """Give ``error`` to transactions whose time is over; return the next deadline,
        or infinity.
        """
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
    """Give the caller an error: the session is gone, so nothing more can be found out about this
    transaction.
    """
    if pending.future.done():
        return
    if pending.times_sent:
        pending.future.set_exception(OutcomeUnknown(f"{why}; it may have been applied"))
    else:
        pending.future.set_exception(SessionLost(why))


def session_gone(pending: PendingTransaction, result: TransactionResult) -> bool:
    """Return whether the whole transaction was refused because the client's own session
    is closed.
    """
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


# One timer for any number of deadlines: a timer for each call costs more than the call.


class DeadlineTimer:
    """Calls back at the soonest deadline, on the event loop on which it was made."""

    def __init__(self, on_due: Callable[[float], float]) -> None:
        """Create the timer. ``on_due`` gets the time, and returns the next deadline, or infinity.

        Both are in seconds on the clock of the event loop.
        """
        self._on_due = on_due
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = math.inf

    def add(self, deadline_s: float) -> None:
        """Have ``on_due`` called at ``deadline_s`` at the latest."""
        if deadline_s < self._due_s:
            self.cancel()
            loop = asyncio.get_running_loop()
            self._due_s = deadline_s
            self._timer = loop.call_at(deadline_s, self._come, loop)

    def cancel(self) -> None:
        """Forget every deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = math.inf

    def _come(self, loop: asyncio.AbstractEventLoop) -> None:
        # A timer may fire a clock tick early.
        now_s = max(loop.time(), self._due_s)
        self._due_s = math.inf
        self.add(self._on_due(now_s))


# Replies of transactions that took effect are sent in columns; nearly every reply is one.
#
# A protobuf message per transaction and operation, written and read again, costs several times what
# applying it does. Both directions are here so that they cannot drift apart.


class ReplyColumns:
    """The results of one frame of replies, in columns. Results that do not fit go into messages of
    their own.
    """

    def __init__(self) -> None:
        self._request_ids: list[int] = []
        self._offsets: list[int] = []
        self._operations: list[int] = []
        self._versions: list[int] = []

    def take(
        self, request_ids: Sequence[int], results: Sequence[TransactionResult | None]
    ) -> list[tuple[int, TransactionResult | None]]:
        """Add these results; return those that have no place here.

        They are results with a refused operation, and None for what was no transaction.
        """
        left: list[tuple[int, TransactionResult | None]] = []
        ok = ResultCode.OK
        for request_id, result in zip(request_ids, results, strict=True):
            if result is None:
                left.append((request_id, result))
                continue
            operations = result.results
            if len(operations) == 1 and operations[0].code is ok:  # Nearly all.
                self._versions.append(operations[0].version)
            elif all([one.code is ok for one in operations]):
                self._versions += [one.version for one in operations]
            else:
                left.append((request_id, result))
                continue
            self._request_ids.append(request_id)
            self._offsets.append(result.offset)
            self._operations.append(len(operations))
        return left

    def to_proto(self) -> pb.TakenEffect | None:
        """Return the message, or None if nothing was taken."""
        if not self._request_ids:
            return None
        return pb.TakenEffect(
            request_ids=self._request_ids,
            offsets=self._offsets,
            operations=self._operations,
            versions=self._versions,
        )


def read_columns(taken: pb.TakenEffect) -> Iterator[tuple[int, TransactionResult]]:
    """Return the (request id, result) of each transaction.

    Raises:
        ValueError: the columns are not of equal length.
    """
    versions = list(taken.versions)
    offsets = cast("Iterable[MetadataOffset]", taken.offsets)
    end = 0
    for request_id, offset, operations in zip(
        taken.request_ids, offsets, taken.operations, strict=True
    ):
        start, end = end, end + operations
        results: tuple[OperationResult, ...]
        if operations == 1 and start < len(versions):  # Nearly all.
            results = (OperationResult(version=versions[start]),)
        else:
            results = tuple([OperationResult(version=v) for v in versions[start:end]])
        yield request_id, TransactionResult(offset=offset, results=results)
    if end != len(versions):
        raise ValueError(f"{len(versions)} versions of {end} operations")
