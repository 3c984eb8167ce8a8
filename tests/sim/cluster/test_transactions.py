"""Tests that the checkers of transactions refuse wrong histories."""

import struct
from collections.abc import Iterable, Sequence

import pytest

from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.log.state.producer_state_manager import ProducerStateManager
from quorate.broker.log.state.transactions import PartitionTransactions, record_batch_state
from tests.sim.cluster.transaction_replay import Replay
from tests.sim.cluster.transaction_truth import (
    CommittedTransactions,
    Outcomes,
    check_stable_offset,
)
from tests.sim.world import Violation
from tests.support.record_batches import TRANSACTIONAL, assemble

A, B = 7, 8
ABORT_A = EndMarker(A, 1, committed=False, coordinator_epoch=3)
COMMIT_B = EndMarker(B, 0, committed=True, coordinator_epoch=3)
HISTORY: Sequence[bytes | EndMarker] = (b"<1.1>", b"<2.1>", ABORT_A, b"<2.2>", COMMIT_B)
"""A writes the first value, B the others; each batch at the offset of its place."""


def _batch(offset: int, what: bytes | EndMarker) -> bytes:
    if isinstance(what, EndMarker):
        placed = bytearray(encode_marker(what, 0))
        struct.pack_into(">q", placed, 0, offset)
        return bytes(placed)
    producer_id, _, sequence = {b"<1.1>": (A, 0, 0), b"<2.1>": (B, 0, 0), b"<2.2>": (B, 0, 1)}[what]
    return assemble(
        what,
        base_offset=offset,
        last_delta=0,
        count=1,
        attributes=TRANSACTIONAL,
        producer=(producer_id, 0, sequence),
    )


def _replay(history: Iterable[bytes | EndMarker], start_offset: int = 0) -> Replay:
    replay = Replay(start_offset)
    for offset, what in enumerate(history, start_offset):
        for header, batch in iterate_batches(_batch(offset, what), "replay"):
            replay.add(header, batch)
    return replay


def _known(
    history: Iterable[bytes | EndMarker],
) -> tuple[PartitionTransactions, ProducerStateManager]:
    """Return what the product knows after it has read the history."""
    transactions, producers = PartitionTransactions("orders-0"), ProducerStateManager("orders-0")
    for offset, what in enumerate(history):
        marker = what if isinstance(what, EndMarker) else None
        for header, _ in iterate_batches(_batch(offset, what), "product"):
            record_batch_state(producers, transactions, header, offset, marker)
    return transactions, producers


@pytest.mark.parametrize("length", range(len(HISTORY) + 1))
def test_what_the_product_makes_of_a_history_is_what_its_batches_say(length: int) -> None:
    replay = _replay(HISTORY[:length])
    transactions, producers = _known(HISTORY[:length])
    assert replay.compare_transactions(transactions, 0) == ""
    assert replay.compare_producers(producers) == ""
    for high_watermark in range(length + 1):
        transactions.settle(high_watermark)
        stable = transactions.stable_offset(high_watermark)
        assert replay.compare_stable_offset(stable, high_watermark, 0) == ""


@pytest.mark.parametrize(
    ("known", "is_refused_for"),
    [
        (HISTORY[:4], "open transactions"),
        ((*HISTORY[:4], COMMIT_B._replace(committed=False)), "aborted transactions"),
        ((*HISTORY[:2], ABORT_A._replace(committed=True), *HISTORY[3:]), "aborted transactions"),
        ((b"<2.1>", b"<1.1>", *HISTORY[2:]), "aborted transactions"),
    ],
    ids=[
        "a marker was missed",
        "not aborted",
        "aborted",
        "order",
    ],
)
def test_a_replica_that_knows_of_other_transactions_is_refused(
    known: Sequence[bytes | EndMarker], is_refused_for: str
) -> None:
    transactions, _ = _known(known)
    assert is_refused_for in _replay(HISTORY).compare_transactions(transactions, 0)


@pytest.mark.parametrize(
    "known",
    [
        HISTORY[1:],
        (*HISTORY[:2], ABORT_A._replace(coordinator_epoch=2), *HISTORY[3:]),
        (*HISTORY[:2], ABORT_A._replace(producer_epoch=0), *HISTORY[3:]),
        (*HISTORY[:3], COMMIT_B),
    ],
    ids=["a batch was missed", "coordinator epoch", "producer epoch", "sequence"],
)
def test_a_replica_that_knows_of_other_producers_is_refused(
    known: Sequence[bytes | EndMarker],
) -> None:
    _, producers = _known(known)
    assert "its batches say" in _replay(HISTORY).compare_producers(producers)


def test_a_producer_that_a_replica_does_not_know_is_refused() -> None:
    assert "does not know producer 7" in _replay(HISTORY).compare_producers(
        ProducerStateManager("p")
    )


@pytest.mark.parametrize(
    ("history", "stable"),
    [
        ((b"<1.1>", ABORT_A, b"<2.1>"), 3),
        ((b"<1.1>", ABORT_A, b"<2.1>"), 1),
        ((b"<1.1>", b"<2.1>", ABORT_A), 1),
    ],
    ids=["a transaction is open", "too low", "a marker that is not committed"],
)
def test_a_last_stable_offset_that_the_batches_do_not_say_is_refused(
    history: Sequence[bytes | EndMarker], stable: int
) -> None:
    high_watermark = 2 if history[-1] is ABORT_A else 3
    replay = _replay(history)
    assert "its batches say" in replay.compare_stable_offset(stable, high_watermark, 0)


def test_who_reads_a_log_from_its_middle_does_not_judge_what_began_below() -> None:
    """``HISTORY`` from its second batch on: the transaction of A is not seen."""
    replay = _replay(HISTORY[1:], 1)
    transactions, _ = _known(HISTORY)
    assert replay.compare_transactions(transactions, 1) == ""
    unknown, _ = _known(HISTORY[:4])
    assert "open transactions" in replay.compare_transactions(unknown, 1)


def test_a_last_stable_offset_that_goes_back_or_is_not_committed_is_refused() -> None:
    check_stable_offset(4, 4, 4, "broker 1", "orders-0")
    with pytest.raises(Violation, match="went back from 4 to 3"):
        check_stable_offset(3, 4, 4, "broker 1", "orders-0")
    with pytest.raises(Violation, match="beyond the high watermark"):
        check_stable_offset(5, None, 4, "broker 1", "orders-0")


def _committed(
    history: Sequence[bytes | EndMarker], *, decided: bool = True
) -> CommittedTransactions:
    outcomes = Outcomes()
    for transaction, values in enumerate(((b"<1.1>",), (b"<2.1>", b"<2.2>"))):
        for value in values:
            outcomes.writes(transaction, value)
        if decided:
            outcomes.decide(transaction, commit=transaction == 1)
    committed = CommittedTransactions("orders-0", outcomes)
    for offset, what in enumerate(history):
        for header, batch in iterate_batches(_batch(offset, what), "committed"):
            committed.add(header, batch, "broker 1")
    return committed


def _records(history: Sequence[bytes | EndMarker]) -> bytes:
    return b"".join(_batch(offset, what) for offset, what in enumerate(history))


def test_a_reader_is_to_be_shown_what_was_committed_and_nothing_else() -> None:
    committed = _committed(HISTORY)
    assert committed.has(ABORT_A)
    assert not committed.has(ABORT_A._replace(coordinator_epoch=4))
    records = _records(HISTORY)
    committed.shown(records, [AbortedTransaction(A, 0, 2)], "a consumer")
    with pytest.raises(Violation, match=r"take the batches at \[0, 1, 3\].*those at \[1, 3\]"):
        committed.shown(records, [], "a consumer")
    told = [AbortedTransaction(A, 0, 2), AbortedTransaction(B, 1, 4)]
    with pytest.raises(Violation, match=r"take the batches at \[\].*those at \[1, 3\]"):
        committed.shown(records, told, "a consumer")
    with pytest.raises(Violation, match="offset 1 of orders-0, whose transaction is open"):
        _committed(HISTORY[:4]).shown(records, [AbortedTransaction(A, 0, 2)], "a consumer")


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_nobody_has_decided_is_refused(committed: bool) -> None:
    """It came late, or from a coordinator that knows nothing of this transaction."""
    late = COMMIT_B._replace(committed=committed)
    with pytest.raises(Violation, match="has not decided yet"):
        _committed((b"<2.1>", late), decided=False)


def test_a_marker_that_says_the_opposite_is_refused() -> None:
    with pytest.raises(Violation, match="its coordinator has decided to abort it"):
        _committed((b"<1.1>", ABORT_A._replace(committed=True)))
