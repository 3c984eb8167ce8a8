"""``apply``: the only way in which the cluster's metadata changes.

It is pure and deterministic. A transaction is a list of operations; an operation holds if all its
conditions do and every one of its records is valid. An atomic transaction takes effect whole or not
at all; otherwise each operation stands alone and reports its own result (ZooKeeper's ``multi()``).

The safety rules are enforced here, where no client can avoid them: only the controller of the
current epoch changes a leader, only a leader changes its own ISR and by compare-and-set (C1, C15,
rule 5), nothing bound to a closed session is accepted (rule 9), a broker writes in its own name
alone where certificates tell its name, and a retry is never applied twice.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from quorate.common.invariants import BrokenInvariant
from quorate.common.types import NO_BROKER, NO_SESSION, BrokerId, MetadataOffset
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.features import BRIDGE, READ_BY_RELEASE_0_1, brokers_may_write
from quorate.metadata_log.image import (
    INTER_BROKER_PROTOCOL,
    LEAST_LEVEL,
    METADATA_VERSION,
    Changes,
    Image,
)
from quorate.metadata_log.paths import ADMINISTRATION, BROKER_IDS, broker_path, version_at
from quorate.metadata_log.records import (
    Absent,
    AtVersion,
    Condition,
    ControllerEpochIs,
    Operation,
    OperationRefused,
    OperationResult,
    Record,
    ResultCode,
    SessionAlive,
    Transaction,
    TransactionResult,
)
from quorate.metadata_log.rules.membership import why_not_use
from quorate.metadata_log.rules.table import RULES, Rule

_NEWEST_RECORDS: Final = max(rule.since for rule in RULES.values())


class RecordNotInForce(Exception):
    """A transaction holds a record that the metadata version in force does not have yet.

    Voters of the version before cannot read it, and pass it over. All others must do the same: it
    leaves nothing behind, not even a result for a retry.
    """

    def __init__(self, kind: str, level: int, in_force: int) -> None:
        super().__init__(
            f"{kind} needs {METADATA_VERSION} {level}, and {in_force} is in force: "
            f"quorate features upgrade --feature {METADATA_VERSION} --level {level}"
        )


class Applied(NamedTuple):
    """The outcome of one transaction: the next image, the result for the client, and
    what changed.
    """

    image: Image
    result: TransactionResult
    changes: Changes


class AppliedRun(NamedTuple):
    """The outcome of several transactions: the image after the last, the result of each, and what
    changed in all.
    """

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
    """Apply the transactions one after the other, as ``apply`` would, and make one image of them.

    The persistent maps are changed once for the whole run, which saves most of what a transaction
    costs.
    """
    draft = Draft(image)
    results: list[TransactionResult] = []
    last = image.offset
    for offset, transaction in transactions:
        if offset <= last:
            raise BrokenInvariant(
                "metadata log",
                "each transaction is applied once, in the order of offsets (C1)",
                offset=offset,
                applied=last,
            )
        results.append(_apply_one(draft, offset, transaction))
        last = offset
    return AppliedRun(draft.folded(last), results, draft.changes())


def _apply_one(draft: Draft, offset: MetadataOffset, transaction: Transaction) -> TransactionResult:
    try:
        return _applied(draft, offset, transaction)
    except RecordNotInForce as unknown:
        draft.undo_to(0)
        return _refused_whole(offset, transaction, ResultCode.INVALID, str(unknown))


def _applied(draft: Draft, offset: MetadataOffset, transaction: Transaction) -> TransactionResult:
    if draft.metadata_version < _NEWEST_RECORDS:
        _require_known(draft, transaction)
    client = transaction.client_id
    writer = transaction.writer
    if writer != NO_BROKER:
        session = draft.sessions.get(client)
        if session is not None and session.broker_id not in (NO_BROKER, writer):
            foreign = why_not_use(session, writer) or ""
            return _refused_whole(offset, transaction, ResultCode.INVALID, foreign)
    if client == NO_SESSION:
        draft.begin_transaction(by_quorum=not transaction.from_client, writer=writer)
        return TransactionResult(offset=offset, results=_run(draft, offset, transaction))
    kept = draft.results.of(client)
    if kept is None:
        detail = f"session {client.hex()} is closed"
        return _refused_whole(offset, transaction, ResultCode.SESSION_GONE, detail)
    sequence = transaction.sequence
    known = kept.get(sequence)
    if known is not None:
        return known  # A retry gets the result of the first attempt and is not applied again.
    if sequence < kept.low_water:
        detail = f"the result of {sequence} was forgotten below {kept.low_water}"
        return _refused_whole(offset, transaction, ResultCode.OUTCOME_UNKNOWN, detail)
    draft.begin_transaction(by_quorum=False, writer=writer)
    result = TransactionResult(offset=offset, results=_run(draft, offset, transaction))
    kept = draft.results.of(client)
    if kept is not None:  # It is None if the transaction closed the client's own session.
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
    """Run the operations. Conditions are about the state before the transaction; records see the
    operations before them.
    """
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
    """Return the refusal of an operation whose conditions do not hold, or None if they do."""
    try:
        for condition in conditions:
            # The most common condition is checked first, and without a call.
            if type(condition) is ControllerEpochIs and (
                condition.controller_epoch == draft.active_controller_epoch
            ):
                continue
            _check(draft, condition)
    except OperationRefused as refusal:
        return OperationResult(code=refusal.code, detail=refusal.detail)
    return None


def _run_operation(draft: Draft, offset: MetadataOffset, operation: Operation) -> OperationResult:
    """Write the records of the operation. The result carries the version of the last record
    written.
    """
    mark = draft.mark()
    version = 0
    controls = draft.controller is not None and draft.controller.broker_id == draft.writer
    try:
        for record in operation.records:
            rule = RULES[type(record)]
            if draft.writer != NO_BROKER:
                _require_own(draft.writer, controls, operation, record, rule)
            if rule.needs_controller:
                _require_authority(draft, operation, record, rule)
            if rule.since > LEAST_LEVEL:
                _require_in_force(draft, record, rule)
            if rule.apply is None:
                version = offset
                continue
            version = rule.apply(draft, offset, record)
            if rule.bridged:
                _note_administration(draft, offset)
    except OperationRefused as refusal:
        draft.undo_to(mark)
        return OperationResult(code=refusal.code, detail=refusal.detail)
    return OperationResult(version=version)


def _require_authority(draft: Draft, operation: Operation, record: Record, rule: Rule) -> None:
    """Refuse the record unless the operation names the controller's epoch.

    A record that is bridged may also come from a live broker at inter_broker_protocol 1.
    """
    for condition in operation.conditions:
        if isinstance(condition, ControllerEpochIs):
            return
    if rule.bridged and draft.metadata_version >= BRIDGE and _by_broker(operation):
        if brokers_may_write(draft):
            return
        raise OperationRefused(
            ResultCode.CONTROLLER_FENCED,
            f"{type(record).__name__} is the controller's to write: {INTER_BROKER_PROTOCOL} is "
            f"at {draft.features.get(INTER_BROKER_PROTOCOL)}",
        )
    raise OperationRefused(
        ResultCode.INVALID,
        f"{type(record).__name__} is the controller's to write: it must carry its epoch",
    )


def _require_own(
    writer: BrokerId, controls: bool, operation: Operation, record: Record, rule: Rule
) -> None:
    """Refuse a record that is not that broker's to write. Its certificate has proved who it is.

    ``controls``: whether the broker was the controller before this operation.
    """
    kind = type(record).__name__
    if rule.names_broker is not None:
        named = rule.names_broker(record)
        if named == writer or (controls and rule.handed_over):
            return
        why = f"{kind} of broker {named} is not broker {writer}'s to write"
    elif not rule.needs_controller:
        why = f"{kind} is the quorum's own to write"
    elif controls or _answers_for(writer, operation):
        return
    else:
        why = f"{kind} is the controller's to write, and broker {writer} is not the controller"
    raise OperationRefused(ResultCode.INVALID, why)


def _answers_for(writer: BrokerId, operation: Operation) -> bool:
    """Return whether that very broker answers for a change of administration, as ``_by_broker``
    has it.
    """
    named = {
        one.path
        for one in operation.conditions
        if isinstance(one, AtVersion) and one.path.startswith(BROKER_IDS)
    }
    by_controller = any(isinstance(one, ControllerEpochIs) for one in operation.conditions)
    return not by_controller and named == {broker_path(writer)}


def _require_known(draft: Draft, transaction: Transaction) -> None:
    """Pass the transaction over if a voter of an earlier release cannot read it, whatever else
    would become of its operations: that voter runs none of them (B4).

    Records that 0.1.0 knows are judged where they are applied, as it does.
    """
    level = draft.metadata_version
    for operation in transaction.operations:
        for record in operation.records:
            since = RULES[type(record)].since
            if since > READ_BY_RELEASE_0_1 and since > level:
                raise RecordNotInForce(type(record).__name__, since, level)


def _require_in_force(draft: Draft, record: Record, rule: Rule) -> None:
    """Raise ``RecordNotInForce`` if the record came with a later level of metadata_version."""
    level = draft.metadata_version
    if level < rule.since:
        raise RecordNotInForce(type(record).__name__, rule.since, level)


def _note_administration(draft: Draft, offset: MetadataOffset) -> None:
    """Note the change of administration, once metadata_version allows it: older voters keep no such
    note.
    """
    if draft.metadata_version >= BRIDGE:
        draft.put_administered(offset)


def _by_broker(operation: Operation) -> bool:
    """Return whether a registered broker answers for the operation, and has seen what it changes.

    The broker names its broker epoch and the version of /administration in conditions, which hold
    already when this is called.
    """
    paths = {one.path for one in operation.conditions if isinstance(one, AtVersion)}
    return ADMINISTRATION in paths and any(path.startswith(BROKER_IDS) for path in paths)


def _check(draft: Draft, condition: Condition) -> None:
    """Refuse the operation if the condition does not hold."""
    match condition:
        case ControllerEpochIs(controller_epoch=epoch):
            if epoch != draft.active_controller_epoch:
                controller = draft.controller
                holder = "nobody" if controller is None else f"broker {controller.broker_id}"
                raise OperationRefused(
                    ResultCode.CONTROLLER_FENCED,
                    f"controller epoch {epoch} is not current: {holder} holds "
                    f"/controller at epoch {draft.controller_epoch}",
                )
        case Absent(path=path):
            if (found := _version(draft, path)) is not None:
                raise OperationRefused(
                    ResultCode.CONDITION_FAILED, f"{path} exists at version {found}"
                )
        case AtVersion(path=path, version=version):
            if (found := _version(draft, path)) != version:
                raise OperationRefused(
                    ResultCode.CONDITION_FAILED, f"{path} is at version {found}, not {version}"
                )
        case SessionAlive(session_id=session):
            if draft.sessions.get(session) is None:
                raise OperationRefused(
                    ResultCode.SESSION_GONE, f"session {session.hex()} is closed"
                )


def _version(draft: Draft, path: str) -> int | None:
    try:
        return version_at(draft, path)
    except ValueError as error:
        raise OperationRefused(ResultCode.INVALID, str(error)) from error
