"""Keeps the fate of each transactional batch that was committed, and what readers may be shown of
it.

Whoever decides about a transaction says so here, when it is decided; whoever writes a batch says
which transaction it is part of. A marker in the committed log must say the same. Pure.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

from quorate.broker.log.batches.control_batches import EndMarker, decode_marker
from quorate.broker.log.batches.record_batch import BatchHeader, iterate_batches
from quorate.broker.log.options import Records
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from tests.sim.world import Violation
from tests.support.committed_reader import committed_batches

_VALUE: Final = re.compile(rb"<\d+\.\d+>")


class Outcomes:
    """The outcomes of the transactions of a run, by the values that are written in them."""

    def __init__(self) -> None:
        self._transaction_of: dict[bytes, int] = {}
        self._decided: dict[int, bool] = {}

    def writes(self, transaction: int, value: bytes) -> None:
        """``value`` is part of it, if it is written at all."""
        self._transaction_of[value] = transaction

    def decide(self, transaction: int, *, commit: bool) -> None:
        assert self._decided.setdefault(transaction, commit) is commit, "it was decided otherwise"

    def of(self, value: bytes) -> bool | None:
        """Whether it is to be committed; None: that is not decided, or it is part of nothing."""
        transaction = self._transaction_of.get(value)
        return None if transaction is None else self._decided.get(transaction)


class CommittedTransactions:
    """The transactions of one partition, as far as its batches are committed."""

    def __init__(self, name: str, outcomes: Outcomes) -> None:
        self._name = name
        self._outcomes = outcomes
        self._open: dict[int, dict[int, bytes]] = {}
        """Producer id → base offset → value."""
        self._counts: dict[int, bool] = {}
        """Base offset of a transactional batch → whether its transaction was committed."""
        self._markers: set[EndMarker] = set()

    def add(self, header: BatchHeader, batch: Records, who: str) -> None:
        """The next committed batch; ``Violation`` if it ends what nobody has decided to end so."""
        if header.is_control:
            marker = decode_marker(header, batch)
            if marker is not None:
                self._end(marker, header.base_offset, who)
        elif header.is_transactional:
            found = _VALUE.search(batch)
            value = b"" if found is None else bytes(found[0])
            self._open.setdefault(header.producer_id, {})[header.base_offset] = value

    def _end(self, marker: EndMarker, offset: int, who: str) -> None:
        self._markers.add(marker)
        for base_offset, value in self._open.pop(marker.producer_id, {}).items():
            decided = self._outcomes.of(value)
            if decided is not marker.committed:
                raise Violation(
                    f"{who} ends the transaction of {value!r} at offset {base_offset} of "
                    f"{self._name} with {marker} at offset {offset}; {_decision(decided)}"
                )
            self._counts[base_offset] = marker.committed

    def has(self, marker: EndMarker) -> bool:
        return marker in self._markers

    def shown(self, data: bytes, aborted: Collection[AbortedTransaction], who: str) -> None:
        """``who`` was given these whole batches, and told what of them was aborted."""
        offered = committed_batches(data, aborted)
        expected = list(self._expected(data, who))
        if offered != expected:
            raise Violation(
                f"{who} is to take the batches at {offered} of {self._name}, told that {aborted} "
                f"were aborted; committed are those at {expected}"
            )

    def _expected(self, data: bytes, who: str) -> Iterable[int]:
        for header, _ in iterate_batches(data, self._name):
            if header.is_control:
                continue
            counts = self._counts.get(header.base_offset) if header.is_transactional else True
            if counts is None:
                raise Violation(
                    f"{who} was shown the batch at offset {header.base_offset} of {self._name}, "
                    "whose transaction is open"
                )
            if counts:
                yield header.base_offset


def _decision(decided: bool | None) -> str:
    if decided is None:
        return "its coordinator has not decided yet"
    return f"its coordinator has decided to {'commit' if decided else 'abort'} it"


def check_stable_offset(
    stable: int, before: int | None, high_watermark: int, who: str, name: str
) -> None:
    """``before``: at the same leader, in the same epoch; None: there was none.

    ``high_watermark``: or the start of the log, where nobody has told the replica of a higher one.
    """
    if stable > high_watermark:
        raise Violation(
            f"{who}: last stable offset {stable} of {name} is beyond the high watermark, "
            f"{high_watermark}"
        )
    if before is not None and stable < before:
        raise Violation(f"{who}: last stable offset of {name} went back from {before} to {stable}")
