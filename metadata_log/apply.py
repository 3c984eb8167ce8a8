"""``apply``: the one way in for every change of the cluster's metadata.

Pure and deterministic. A transaction is a list of operations; each holds if all its conditions do
and every one of its records is valid. An atomic transaction takes effect whole or not at all;
otherwise each operation stands alone and reports its own result (ZooKeeper's ``multi()``).

The safety rules live here, where no client can walk around them: only the controller of the current
epoch changes a leader, only a leader changes its own ISR and by compare-and-set (C1, C15,
rule 5), nothing bound to a closed session is accepted (rule 9), a retry never applies twice.
"""

from typing import NamedTuple

import immutables

from metadata_log.draft import Changes, Draft
from metadata_log.image import ClientResults, Image
from metadata_log.paths import version_at
from metadata_log.records import (
    Absent,
    AtVersion,
    Condition,
    ControllerEpochIs,
    Operation,
    OperationResult,
    ResultCode,
    SessionAlive,
    Transaction,
    TransactionResult,
)
from metadata_log.rules.requirements import Refused
from metadata_log.rules.table import apply_record, needs_controller
from metadata_log.types import NO_SESSION, MetadataOffset


class Applied(NamedTuple):
    """Outcome of one transaction: the next image, what the client is told, what changed."""

    image: Image
    result: TransactionResult
    changes: Changes


def apply(image: Image, offset: MetadataOffset, transaction: Transaction) -> Applied:
    """Apply ``transaction`` at metadata offset ``offset`` to ``image``.

    ``offset`` must be greater than ``image.offset``; offsets between are no-ops of the quorum.
    A refusal is a result, never an exception: it is part of the replicated state.
    """
    if offset <= image.offset:
        raise ValueError(f"offset {offset} was applied already: the image is at {image.offset}")
    known = _known_result(image, offset, transaction)
    draft = Draft(image)
    if known is not None:
        result = known
    else:
        result = TransactionResult(offset=offset, results=_run(image, draft, offset, transaction))
        _keep_result(draft, transaction, result)
    next_image, changes = draft.finish(offset)
    return Applied(next_image, result, changes)


# --- exactly once -------------------------------------------------------------------------------


def _known_result(
    image: Image, offset: MetadataOffset, transaction: Transaction
) -> TransactionResult | None:
    """What a client's retry is told without being applied; None if it is to be applied."""
    client = transaction.client_id
    if client == NO_SESSION:
        return None
    if client not in image.sessions:
        detail = f"session {client.hex()} is closed"
        return _refused_whole(offset, transaction, ResultCode.SESSION_GONE, detail)
    kept = image.results.get(client)
    if kept is None:
        return None
    result = kept.by_sequence.get(transaction.sequence)
    if result is None and transaction.sequence < kept.low_water:
        detail = f"the result of {transaction.sequence} was forgotten below {kept.low_water}"
        return _refused_whole(offset, transaction, ResultCode.OUTCOME_UNKNOWN, detail)
    return result


def _refused_whole(
    offset: MetadataOffset, transaction: Transaction, code: ResultCode, detail: str
) -> TransactionResult:
    result = OperationResult(code=code, detail=detail)
    return TransactionResult(offset=offset, results=(result,) * len(transaction.operations))


def _keep_result(draft: Draft, transaction: Transaction, result: TransactionResult) -> None:
    """Remember the result for retries, and forget what the client no longer asks for."""
    client = transaction.client_id
    if client == NO_SESSION or draft.sessions.get(client) is None:
        return
    kept = draft.results.get(client) or ClientResults(0, immutables.Map())
    low_water = max(kept.low_water, transaction.low_water)
    with kept.by_sequence.mutate() as results:
        for sequence in _forgotten(kept, low_water):
            del results[sequence]
        results[transaction.sequence] = result
        draft.results.put(client, ClientResults(low_water, results.finish()))


def _forgotten(kept: ClientResults, low_water: int) -> list[int]:
    """Kept sequences below the new low-water mark.

    Sequences are dense as a rule, so walking the step is cheaper than walking what is kept; a mark
    that jumps far (a client may choose any) must not cost more than what is kept.
    """
    if low_water - kept.low_water <= len(kept.by_sequence):
        return [s for s in range(kept.low_water, low_water) if s in kept.by_sequence]
    return [s for s in kept.by_sequence if s < low_water]


# --- operations ---------------------------------------------------------------------------------


def _run(
    image: Image, draft: Draft, offset: MetadataOffset, transaction: Transaction
) -> tuple[OperationResult, ...]:
    results: list[OperationResult] = []
    for operation in transaction.operations:
        mark = draft.mark()
        try:
            version = _run_operation(image, draft, offset, operation)
        except Refused as refusal:
            draft.undo_to(mark)
            results.append(OperationResult(code=refusal.code, detail=refusal.detail))
        else:
            results.append(OperationResult(version=version))
    if transaction.atomic and not all(result.ok for result in results):
        draft.undo_to(0)
        aborted = OperationResult(
            code=ResultCode.ABORTED, detail="another operation of the transaction was refused"
        )
        results = [aborted if result.ok else result for result in results]
    return tuple(results)


def _run_operation(image: Image, draft: Draft, offset: MetadataOffset, operation: Operation) -> int:
    """Version of the last record written.

    Conditions speak of the image before the transaction; records see the operations before them.
    """
    for condition in operation.conditions:
        _check(image, condition)
    has_epoch = any(isinstance(c, ControllerEpochIs) for c in operation.conditions)
    version = 0
    for record in operation.records:
        if needs_controller(record) and not has_epoch:
            raise Refused(
                ResultCode.INVALID,
                f"{type(record).__name__} is the controller's to write: it must carry its epoch",
            )
        version = apply_record(draft, offset, record)
    return version


def _check(image: Image, condition: Condition) -> None:
    match condition:
        case ControllerEpochIs(controller_epoch=epoch):
            if image.controller is None or image.controller_epoch != epoch:
                holder = "nobody" if image.controller is None else f"broker {image.controller_id}"
                raise Refused(
                    ResultCode.CONTROLLER_FENCED,
                    f"controller epoch {epoch} is not current: {holder} holds /controller "
                    f"at epoch {image.controller_epoch}",
                )
        case Absent(path=path):
            if (found := _version(image, path)) is not None:
                raise Refused(ResultCode.CONDITION_FAILED, f"{path} exists at version {found}")
        case AtVersion(path=path, version=version):
            if (found := _version(image, path)) != version:
                raise Refused(
                    ResultCode.CONDITION_FAILED, f"{path} is at version {found}, not {version}"
                )
        case SessionAlive(session_id=session):
            if session not in image.sessions:
                raise Refused(ResultCode.SESSION_GONE, f"session {session.hex()} is closed")


def _version(image: Image, path: str) -> int | None:
    try:
        return version_at(image, path)
    except ValueError as error:
        raise Refused(ResultCode.INVALID, str(error)) from error
