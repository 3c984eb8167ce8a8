"""Writes what managers decided item by item, and notes in each item's result what became of it."""

import logging
from collections.abc import Sequence
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
    written = [position for position, one in enumerate(decisions) if one.operation is not None]
    outcomes: list[OperationResult | None] = [None] * len(decisions)
    operations = [one.operation for one in decisions if one.operation is not None]
    try:
        applied = await writer.commit(operations)
    except SessionLost:
        raise
    except QuorumError as error:
        log.warning("%d changes without an answer: %s", len(operations), error)
        for position in written:
            result = decisions[position].result
            result.error_code = errors_pb2.REQUEST_TIMED_OUT
            result.error_message = f"the metadata quorum did not answer: {error}"
        return outcomes
    for position, outcome in zip(written, applied, strict=True):
        outcomes[position] = outcome
        if not outcome.ok:
            result = decisions[position].result
            result.error_code = CODE_OF_RESULT[outcome.code]
            result.error_message = outcome.detail
    return outcomes
