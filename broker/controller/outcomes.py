"""Writes what managers decided item by item, and notes in each item's result what became of it."""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from broker.controller.writer import Writer
from broker.errors import CODE_OF_RESULT
from metadata_log.records import Operation, OperationResult
from quorate_proto.v1 import errors_pb2
from quorum.errors import QuorumError, SessionLost

log = logging.getLogger(__name__)


class ItemResult(Protocol):
    """What is told about one item of a request."""

    error_code: int
    error_message: str


class ItemDecision(Protocol):
    """One item: its result is true once ``operation`` is applied; None: refused, or no change."""

    @property
    def result(self) -> ItemResult: ...

    @property
    def operation(self) -> Operation | None: ...


async def carry_out(
    writer: Writer, decisions: Sequence[ItemDecision]
) -> list[OperationResult | None]:
    """Write the operations of ``decisions``; one outcome each, None where there is none.

    Raises:
        LeftOffice, SessionLost: another controller is in office, or soon will be.
    """
    try:
        results = await writer.commit(operations_of(decisions))
    except SessionLost:
        raise
    except QuorumError as error:
        note_no_answer(decisions, error)
        return [None] * len(decisions)
    return note_outcomes(decisions, results)


def operations_of(decisions: Iterable[ItemDecision]) -> list[Operation]:
    """What has to be written, in order."""
    return [one.operation for one in decisions if one.operation is not None]


def note_outcomes(
    decisions: Sequence[ItemDecision], results: Iterable[OperationResult]
) -> list[OperationResult | None]:
    """Note refusals in items' results; one outcome per decision, None where it wrote nothing."""
    left = iter(results)
    outcomes = [None if one.operation is None else next(left) for one in decisions]
    for decision, outcome in zip(decisions, outcomes, strict=True):
        if outcome is not None and not outcome.ok:
            decision.result.error_code = CODE_OF_RESULT[outcome.code]
            decision.result.error_message = outcome.detail
    return outcomes


def note_no_answer(decisions: Sequence[ItemDecision], error: QuorumError) -> None:
    """Note in items' results that it is unknown what became of them.

    Also of those that had nothing to write: it may be others of the same round that did.
    """
    unknown = [one.result for one in decisions if one.result.error_code == errors_pb2.NONE]
    log.warning("%d changes without an answer: %s", len(unknown), error)
    for result in unknown:
        result.error_code = errors_pb2.REQUEST_TIMED_OUT
        result.error_message = f"the metadata quorum did not answer: {error}"
