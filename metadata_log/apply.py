"""``apply``: the one way in for every change of the cluster's metadata.

Pure and deterministic. A transaction is a list of operations; each holds if all its conditions do
and every one of its records is valid. An atomic transaction takes effect whole or not at all;
otherwise each operation stands alone and reports its own result (ZooKeeper's ``multi()``).

The safety rules live here, where no client can walk around them: only the controller of the current
epoch changes a leader, only a leader changes its own ISR and by compare-and-set (C1, C15,
rule 5), nothing bound to a closed session is accepted (rule 9), a retry never applies twice.
"""

from collections.abc import Iterable
from typing import NamedTuple

from metadata_log.draft import Changes, Draft
from metadata_log.features import (
    BRIDGE,
    INTER_BROKER_PROTOCOL,
    brokers_may_write,
    metadata_version,
)
from metadata_log.image import Image
from metadata_log.paths import ADMINISTRATION, BROKER_IDS, version_at
from metadata_log.records import (
    Absent,
    AtVersion,
    ChangeNote,
    Condition,
    ControllerEpochIs,
    Operation,
    OperationResult,
    Record,
    ResultCode,
    SessionAlive,
    Transaction,
    TransactionResult,
)
from metadata_log.rules.requirements import NotInForce, Refused
from metadata_log.rules.table import RULES, Rule
from metadata_log.types import NO_SESSION, MetadataOffset


class Applied(NamedTuple):
    """Outcome of one transaction: the next image, what the client is told, what changed."""

    image: Image
    result: TransactionResult
    changes: Changes


class AppliedRun(NamedTuple):
    """Outcome of several: the image after the last, each one's result, what changed in all."""

    image: Image
    results: list[TransactionResult]
    changes: Changes


def apply(image: Image, offset: MetadataOffset, transaction: Transaction) -> Applied:
    """Apply ``transaction`` at metadata offset ``offset`` to ``image``: a run of one.

    ``offset`` must be greater than ``image.offset``; offsets between are no-ops of the quorum.
    A refusal is a result, never an exception: it is part of the replicated state.
    """
    after, results, changes = apply_run(image, ((offset, transaction),))
    return Applied(after, results[0], changes)


def apply_run(
    image: Image, transactions: Iterable[tuple[MetadataOffset, Transaction]]
) -> AppliedRun:
    """Apply one transaction after the other, as ``apply`` would, and make one image of it.

    The persistent maps are changed once for the whole run: most of what one transaction costs.
    """
    draft = Draft(image)
    results: list[TransactionResult] = []
    last = image.offset
    for offset, transaction in transactions:
        if offset <= last:
            raise ValueError(f"offset {offset} was applied already: the image is at {last}")
        results.append(_apply_one(draft, offset, transaction))
        last = offset
    return AppliedRun(draft.folded(last), results, draft.changes())


def _apply_one(draft: Draft, offset: MetadataOffset, transaction: Transaction) -> TransactionResult:
    try:
        return _applied(draft, offset, transaction)
    except NotInForce as unknown:
        draft.undo_to(0)
        return _refused_whole(offset, transaction, ResultCode.INVALID, str(unknown))


def _applied(draft: Draft, offset: MetadataOffset, transaction: Transaction) -> TransactionResult:
    client = transaction.client_id
    if client == NO_SESSION:
        draft.begin_transaction(by_quorum=not transaction.from_client)
        return TransactionResult(offset=offset, results=_run(draft, offset, transaction))
    kept = draft.results.of(client)
    if kept is None:
        detail = f"session {client.hex()} is closed"
        return _refused_whole(offset, transaction, ResultCode.SESSION_GONE, detail)
    sequence = transaction.sequence
    known = kept.get(sequence)
    if known is not None:
        return known  # A retry: exactly once means that it is told what was done, not applied.
    if sequence < kept.low_water:
        detail = f"the result of {sequence} was forgotten below {kept.low_water}"
        return _refused_whole(offset, transaction, ResultCode.OUTCOME_UNKNOWN, detail)
    draft.begin_transaction(by_quorum=False)
    result = TransactionResult(offset=offset, results=_run(draft, offset, transaction))
    kept = draft.results.of(client)
    if kept is not None:  # It may have closed its own session.
        kept.keep(sequence, result, transaction.low_water)
    return result


def _refused_whole(
    offset: MetadataOffset, transaction: Transaction, code: ResultCode, detail: str
) -> TransactionResult:
    result = OperationResult(code=code, detail=detail)
    return TransactionResult(offset=offset, results=(result,) * len(transaction.operations))


# --- operations ---------------------------------------------------------------------------------


def _run(
    draft: Draft, offset: MetadataOffset, transaction: Transaction
) -> tuple[OperationResult, ...]:
    """Conditions speak of the state before the transaction, records see the operations before."""
    operations = transaction.operations
    if len(operations) == 1:
        (operation,) = operations
        refused = _unmet_condition(draft, operation.conditions)
        return (refused if refused is not None else _run_operation(draft, offset, operation),)
    unmet = [_unmet_condition(draft, operation.conditions) for operation in operations]
    results = [
        refused or _run_operation(draft, offset, operation)
        for operation, refused in zip(operations, unmet, strict=True)
    ]
    if transaction.atomic and not all(result.ok for result in results):
        draft.undo_to(0)
        results = [_ABORTED if result.ok else result for result in results]
    return tuple(results)


_ABORTED = OperationResult(
    code=ResultCode.ABORTED, detail="another operation of the transaction was refused"
)


def _unmet_condition(draft: Draft, conditions: tuple[Condition, ...]) -> OperationResult | None:
    """What an operation is told whose conditions do not hold; None if they do."""
    try:
        for condition in conditions:
            # The most common one first, and without a call.
            if type(condition) is ControllerEpochIs and (
                condition.controller_epoch == draft.epoch_in_office
            ):
                continue
            _check(draft, condition)
    except Refused as refusal:
        return OperationResult(code=refusal.code, detail=refusal.detail)
    return None


def _run_operation(draft: Draft, offset: MetadataOffset, operation: Operation) -> OperationResult:
    """Its result has the version of the last record written."""
    mark = draft.mark()
    version = 0
    try:
        for record in operation.records:
            rule = RULES[type(record)]
            if rule.needs_controller:
                _require_authority(draft, operation, record, rule)
            version = rule.apply(draft, offset, record)
            if rule.bridged and type(record) is not ChangeNote:
                _note_administration(draft, offset)
    except Refused as refusal:
        draft.undo_to(mark)
        return OperationResult(code=refusal.code, detail=refusal.detail)
    return OperationResult(version=version)


def _require_authority(draft: Draft, operation: Operation, record: Record, rule: Rule) -> None:
    """The controller's epoch; or, for what is bridged, a live broker at inter_broker_protocol 1."""
    for condition in operation.conditions:
        if isinstance(condition, ControllerEpochIs):
            return
    if rule.bridged and metadata_version(draft) >= BRIDGE and _by_broker(operation):
        if brokers_may_write(draft):
            return
        raise Refused(
            ResultCode.CONTROLLER_FENCED,
            f"{type(record).__name__} is the controller's to write: {INTER_BROKER_PROTOCOL} is "
            f"at {draft.features.get(INTER_BROKER_PROTOCOL)}",
        )
    raise Refused(
        ResultCode.INVALID,
        f"{type(record).__name__} is the controller's to write: it must carry its epoch",
    )


def _note_administration(draft: Draft, offset: MetadataOffset) -> None:
    """Older voters keep no such note: nobody does before they are gone."""
    if metadata_version(draft) >= BRIDGE:
        draft.administered = offset


def _by_broker(operation: Operation) -> bool:
    """Whether a registered broker stands for it, by its broker epoch, and has seen what it changes.

    Conditions hold already when this is asked.
    """
    paths = {one.path for one in operation.conditions if isinstance(one, AtVersion)}
    return ADMINISTRATION in paths and any(path.startswith(BROKER_IDS) for path in paths)


def _check(draft: Draft, condition: Condition) -> None:
    """Nothing if it holds."""
    match condition:
        case ControllerEpochIs(controller_epoch=epoch):
            if epoch != draft.epoch_in_office:
                controller = draft.controller
                holder = "nobody" if controller is None else f"broker {controller.broker_id}"
                raise Refused(
                    ResultCode.CONTROLLER_FENCED,
                    f"controller epoch {epoch} is not current: {holder} holds "
                    f"/controller at epoch {draft.controller_epoch}",
                )
        case Absent(path=path):
            if (found := _version(draft, path)) is not None:
                raise Refused(ResultCode.CONDITION_FAILED, f"{path} exists at version {found}")
        case AtVersion(path=path, version=version):
            if (found := _version(draft, path)) != version:
                raise Refused(
                    ResultCode.CONDITION_FAILED, f"{path} is at version {found}, not {version}"
                )
        case SessionAlive(session_id=session):
            if draft.sessions.get(session) is None:
                raise Refused(ResultCode.SESSION_GONE, f"session {session.hex()} is closed")


def _version(draft: Draft, path: str) -> int | None:
    try:
        return version_at(draft, path)
    except ValueError as error:
        raise Refused(ResultCode.INVALID, str(error)) from error
