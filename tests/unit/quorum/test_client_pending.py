"""A client's transactions without a result: sequences, retries, and the errors they end in."""

import asyncio

import pytest

from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.codec import decode_transaction
from quorate.metadata_log.records import (
    ConfigSet,
    FeatureLevel,
    Operation,
    OperationResult,
    ResultCode,
    Transaction,
    TransactionResult,
)
from quorate.quorum.client.pending_transactions import (
    PendingTransaction,
    PendingTransactions,
    fail,
    settle,
)
from quorate.quorum.quorum_errors import OutcomeUnknown, SessionLost, TransactionTooLarge

SESSION = SessionId(b"s" * 16)
OPERATION = Operation(records=(FeatureLevel(name="f", level=1),))


def add(
    pending: PendingTransactions, operation: Operation = OPERATION, timeout_ms: int = 1_000
) -> PendingTransaction:
    future: asyncio.Future[TransactionResult] = asyncio.get_running_loop().create_future()
    return pending.add(
        SESSION, (operation,), atomic=True, timestamp_ms=5, future=future, timeout_ms=timeout_ms
    )


def decoded(pending: PendingTransaction) -> Transaction:
    return decode_transaction(pending.encoded)


def refused(code: ResultCode, detail: str) -> TransactionResult:
    return TransactionResult(
        offset=MetadataOffset(9), results=(OperationResult(code=code, detail=detail),)
    )


async def test_low_water_is_the_lowest_that_may_be_retried() -> None:
    pending = PendingTransactions()
    first, second = add(pending), add(pending)
    assert [decoded(one).sequence for one in (first, second)] == [1, 2]
    assert [decoded(one).low_water for one in (first, second)] == [1, 1]
    pending.forget(1)
    assert decoded(add(pending)).low_water == 2
    pending.forget(2)
    pending.forget(3)
    assert decoded(add(pending)).low_water == 4


async def test_each_is_sent_once_until_the_stream_breaks() -> None:
    pending = PendingTransactions()
    first, second = add(pending), add(pending)
    assert pending.take_unsent(1 << 20) == [first, second]
    assert pending.take_unsent(1 << 20) == []
    pending.forget(1)
    pending.send_again()
    third = add(pending)
    assert pending.take_unsent(1 << 20) == [second, third]
    assert (second.times_sent, third.times_sent) == (2, 1)


async def test_frames_are_limited_but_never_empty() -> None:
    pending = PendingTransactions()
    transactions = [add(pending) for _ in range(3)]
    assert [pending.take_unsent(1) for _ in range(4)] == [[one] for one in transactions] + [[]]


async def test_who_gave_up_is_not_sent() -> None:
    pending = PendingTransactions()
    add(pending).future.cancel()
    second = add(pending)
    assert pending.take_unsent(1 << 20) == [second]


async def test_too_large_is_refused_without_a_sequence() -> None:
    pending = PendingTransactions()
    huge = ConfigSet(entity_type="topic", entity_name="t", key="k", value="x" * (1 << 20))
    with pytest.raises(TransactionTooLarge):
        add(pending, Operation(records=(huge,)))
    assert decoded(add(pending)).sequence == 1


async def test_refused_operation_is_a_result() -> None:
    one = add(PendingTransactions())
    result = refused(ResultCode.VERSION_CONFLICT, "is at version 4, not 3")
    settle(one, result)
    assert await one.future == result


async def test_closed_session_is_lost_or_unknown_after_a_retry() -> None:
    gone = refused(ResultCode.SESSION_GONE, f"session {SESSION.hex()} is closed")
    for times_sent, error in ((1, SessionLost), (2, OutcomeUnknown)):
        one = add(PendingTransactions())
        one.times_sent = times_sent
        settle(one, gone)
        with pytest.raises(error):
            await one.future


async def test_another_session_that_is_gone_is_a_result() -> None:
    one = add(PendingTransactions())
    result = refused(ResultCode.SESSION_GONE, f"session {b'o'.hex() * 16} is closed")
    settle(one, result)
    assert await one.future == result


async def test_forgotten_result_is_unknown() -> None:
    one = add(PendingTransactions())
    settle(one, refused(ResultCode.OUTCOME_UNKNOWN, "the result of 1 was forgotten below 2"))
    with pytest.raises(OutcomeUnknown, match="forgotten"):
        await one.future


async def test_lost_session_ends_what_is_pending() -> None:
    unsent, sent = add(PendingTransactions()), add(PendingTransactions())
    sent.times_sent = 1
    for one in (unsent, sent):
        fail(one, "session is closed")
    with pytest.raises(SessionLost):
        await unsent.future
    with pytest.raises(OutcomeUnknown, match="may have been applied"):
        await sent.future
