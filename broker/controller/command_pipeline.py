"""The path of a command: a change of the cluster that a client asks the controller for.

``CommandPipeline.run`` is the whole path, from the top down:

1. decode: the request is a protobuf message already, whichever wire it came by;
2. authorize: the rights of the requester decide how much of the request may be carried out (F5);
3. decide: a pure manager turns the request and the newest image into decisions;
4. write: the operations of the decisions are committed to the metadata log, with a note of who
   asked ahead of their records;
5. publish: the ``ControllerChannelManager`` sends the brokers what was applied;
6. audit: each item of the request is one line of the audit log (F5);
7. answer: one result per item, in the order of the request.

Steps 3 to 5 differ between changes: each change has a handler, a method in ``controller.requests``.
Handlers decide and write by ``DecisionWriter`` or, within an event, by ``write_items``.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from quorate.broker.changes.audit_log import KeepAuditEntries
from quorate.broker.changes.authorization import authorize
from quorate.broker.changes.items import AuditedItem
from quorate.broker.changes.table import A, Change, Q
from quorate.broker.common.errors import CODE_OF_RESULT, ERROR_NAMES, KafkaError
from quorate.broker.controller.managers.decisions import ItemDecision, R, operations_of
from quorate.broker.controller.tenure import (
    EventPriority,
    EventQueue,
    Requester,
    TenureEnded,
    Writer,
    WriteRequest,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.authorizer import Authorizer, caller_of
from quorate.common.types import ControllerEpoch, MetadataOffset
from quorate.metadata_log.apply import apply
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import Operation, OperationResult, ResultCode, Transaction
from quorate.quorum.quorum_errors import QuorumError, SessionLost
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

T = TypeVar("T")

OPERATIONS_PER_ROUND: Final = 500
"""The number of operations after which other events get their turn. Broker failures go ahead of
admin requests."""

PIECE_PARTITIONS: Final = 2_000
"""A request is queued in pieces of about this many partitions, because an election may have to wait
for one piece."""


class CommandPipeline:
    """Carries commands out; ``run`` has all steps from top to bottom.

    ``controller_epoch`` is 0 at a broker that is not the controller (F6, level 1).
    """

    def __init__(
        self,
        *,
        controller_epoch: ControllerEpoch,
        images: MetadataFollower,
        authorizer: Authorizer,
        audit_log: KeepAuditEntries,
    ) -> None:
        self._handlers: dict[str, Callable[[Any, Requester], Awaitable[Any]]] = {}
        self._controller_epoch = controller_epoch
        self._images = images
        self._authorizer = authorizer
        self._audit_log = audit_log

    def register(
        self, change: Change[Q, A], handler: Callable[[Q, Requester], Awaitable[A]]
    ) -> None:
        """Have ``handler`` decide, write and publish the requests of ``change``.

        The handlers are registered by the classes in ``controller.requests``.
        """
        self._handlers[change.rpc] = handler

    async def run(self, change: Change[Q, A], request: Q) -> A:
        """Carry out the part of ``request`` that its requester is authorized for, and answer all of
        it.

        NOT_CONTROLLER is not audited, because nothing was done and the request goes to another
        broker.
        """
        requester = Requester.of(request.context, change.rpc)

        # Authorize. Unauthorized items are refused here, and the rest continues without them.
        rights = self._authorizer.rights_of(caller_of(request.context))
        permitted = authorize(change, request, rights, self._images.image)

        # Decide, write and publish.
        if permitted.request is None:
            answer = change.answer()
        else:
            answer = await self._handle(change, permitted.request, requester)
        answer = permitted.complete(answer)

        # Audit, then answer.
        if answer.error_code != errors_pb2.NOT_CONTROLLER:
            await self._audit(change, request, answer, requester)
        return answer

    async def _handle(self, change: Change[Q, A], request: Q, requester: Requester) -> A:
        """Call the change's handler. An error that it raises about the whole request becomes the
        answer.

        A change without a handler is answered with UNSUPPORTED_VERSION. NOT_CONTROLLER is answered
        once this controller's tenure has ended, or its session is lost.
        """
        handler = self._handlers.get(change.rpc)
        if handler is None:
            reason = f"{change.rpc} is not served yet"
            return change.failed(request, errors_pb2.UNSUPPORTED_VERSION, reason)
        try:
            return cast("A", await handler(request, requester))
        except (TenureEnded, SessionLost):
            answer = change.answer()
            answer.error_code = errors_pb2.NOT_CONTROLLER
            return answer
        except KafkaError as error:
            return change.failed(request, error.code, error.message)
        except QuorumError as error:
            log.warning("%s without an answer: %s", change.rpc, error)
            return change.failed(request, errors_pb2.REQUEST_TIMED_OUT, no_answer(error))

    async def _audit(
        self, change: Change[Q, A], request: Q, answer: A, requester: Requester
    ) -> None:
        common = {
            "principal": requester.note.principal,
            "client_host": requester.note.client_host,
            "client_id": requester.note.client_id,
            "forwarded_by": requester.note.forwarded_by,
            "api": requester.note.api,
            "validate_only": bool(getattr(request, "validate_only", False)),
            "controller_epoch": self._controller_epoch,
            "metadata_offset": requester.metadata_offset,
        }
        entries = [
            {**common, "resource": one.resource, "result": ERROR_NAMES[one.error_code]}
            for one in _audited_items(change, request, answer)
        ]
        if entries:
            await self._audit_log(entries)


def _audited_items(change: Change[Q, A], request: Q, answer: A) -> list[AuditedItem]:
    """Return the items of the answer, or the items of the request if the answer is a failure
    without items."""
    items = list(change.items.audited(request, answer))
    if items or answer.error_code == errors_pb2.NONE:
        return items
    failed = change.failed(request, answer.error_code, "")
    return list(change.items.audited(request, failed))


# --- decide and write ---------------------------------------------------------------------------


class PendingDecision(NamedTuple, Generic[T]):
    """A decision about a request, and the operations that must be written to make it true."""

    decision: T
    operations: Sequence[Operation]


Decide = Callable[[Image], PendingDecision[T]]
"""Decides without side effects. An exception that it raises goes to the requester."""


class _WaitingRequest(Generic[T]):
    """One request that waits for its round, and its outcome."""

    def __init__(self, decide: Decide[T], requester: Requester) -> None:
        self.decide = decide
        self.requester = requester
        self.decision: T | None = None
        self.results: Sequence[OperationResult] | None = None
        self.error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.results is not None or self.error is not None

    def decide_on(self, image: Image) -> Sequence[Operation] | None:
        """Return the operations to write, or None if the decision is an error."""
        try:
            self.decision, operations = self.decide(image)
        except Exception as error:  # noqa: BLE001 - handed to the one who waits
            self.error = error
            return None
        return operations

    def wrote(self, results: Sequence[OperationResult]) -> None:
        self.results = results

    def failed(self, error: Exception) -> None:
        self.error = error


class DecisionWriter:
    """Decides requests in the event queue, and writes the decisions.

    Requests that wait at the same time are decided one after another and written together, because
    a round of the quorum costs the same for one change and for a hundred. The first request in the
    event queue decides for all that wait by then, each on the image that the earlier ones will
    produce, and one commit serves them all. The answers are sent together. No request waits for
    others to arrive: a single change is written at once. With ``together`` False each round has one
    request.

    The image that earlier requests will produce is only a prediction, because another writer may
    come in between. A decision that depends on other state has that state in its operation's
    conditions, and ``apply`` checks them. A requester whose operation is refused there gets the
    refusal, and the others do not.
    """

    def __init__(self, writer: Writer, events: EventQueue, *, together: bool = True) -> None:
        self._writer = writer
        self._events = events
        self._together = together
        self._waiting: deque[_WaitingRequest[Any]] = deque()

    async def write_each(
        self,
        decide: Callable[[Image], Sequence[ItemDecision[R]]],
        requester: Requester,
        *,
        validate_only: bool = False,
    ) -> list[R]:
        """Decide item by item, write, and return each item's result.

        With ``validate_only`` nothing is written.

        Raises:
            TenureEnded, SessionLost: another controller is active, or soon will be.
        """
        kept: list[Sequence[ItemDecision[R]]] = []

        def items(image: Image) -> PendingDecision[Sequence[ItemDecision[R]]]:
            decisions = decide(image)
            kept.append(decisions)
            return PendingDecision(decisions, () if validate_only else operations_of(decisions))

        try:
            decisions, results = await self.write(items, requester)
        except SessionLost:
            raise
        except QuorumError as error:
            (decisions,) = kept
            _note_no_answer(decisions, error)
        else:
            if not validate_only:
                note_outcomes(decisions, results)
        return [decision.result for decision in decisions]

    async def write(
        self, decide: Decide[T], requester: Requester
    ) -> tuple[T, Sequence[OperationResult]]:
        """Decide and write; return the decision, and one result per operation.

        Raises:
            TenureEnded, QuorumError: as ``Writer.commit``.
            Exception: what ``decide`` raised.
        """
        waiting = _WaitingRequest(decide, requester)
        self._waiting.append(waiting)

        async def in_turn() -> tuple[T, Sequence[OperationResult]]:
            """Return the result of a round of its own, unless an earlier round had this request."""
            if not waiting.is_done:
                await self._round()
            if waiting.error is not None:
                raise waiting.error
            assert waiting.results is not None, "rounds are in the order of the queue"
            return cast("T", waiting.decision), waiting.results

        return await self._events.run(EventPriority.ADMIN, in_turn)

    async def _round(self) -> None:
        requests = self._decide_all()
        try:
            results = await self._writer.commit_together(list(requests.values()))
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            for waiting in requests:
                waiting.failed(error)
        else:
            for waiting, own in zip(requests, results, strict=True):
                waiting.wrote(own)

    def _decide_all(self) -> dict[_WaitingRequest[Any], WriteRequest]:
        """Decide each request of the round. Return the operations to write for each."""
        image, operations = self._writer.image, 0
        requests: dict[_WaitingRequest[Any], WriteRequest] = {}
        limit = OPERATIONS_PER_ROUND if self._together else 0
        while self._waiting and (not requests or operations < limit):
            waiting = self._waiting.popleft()
            needed = waiting.decide_on(image)
            if needed is None:
                continue
            requests[waiting] = WriteRequest(waiting.requester, needed)
            operations += len(needed)
            if self._waiting:
                image = predicted_image(image, needed)
        return requests


def predicted_image(image: Image, operations: Sequence[Operation]) -> Image:
    """Return the image after ``operations``, provided that nobody else writes before."""
    if not operations:
        return image
    transaction = Transaction(operations=tuple(operations), atomic=False)
    return apply(image, MetadataOffset(image.offset + 1), transaction).image


async def write_items(
    writer: Writer, decisions: Sequence[ItemDecision[R]], requester: Requester | None
) -> list[OperationResult | None]:
    """Write the operations of ``decisions``, and record the outcome of each in its result.

    Return one outcome per decision, None for a decision without operation. The caller already runs
    as an event of the queue.

    Raises:
        TenureEnded, SessionLost: another controller is active, or soon will be.
    """
    try:
        results = await writer.commit(operations_of(decisions), requester)
    except SessionLost:
        raise
    except QuorumError as error:
        _note_no_answer(decisions, error)
        return [None] * len(decisions)
    return note_outcomes(decisions, results)


def note_outcomes(
    decisions: Sequence[ItemDecision[R]], results: Iterable[OperationResult]
) -> list[OperationResult | None]:
    """Record in the items' results which operations the metadata log refused."""
    left = iter(results)
    outcomes = [None if one.operation is None else next(left) for one in decisions]
    for decision, outcome in zip(decisions, outcomes, strict=True):
        if outcome is not None and outcome.code is not ResultCode.OK:
            decision.result.error_code = CODE_OF_RESULT[outcome.code]
            decision.result.error_message = outcome.detail
    return outcomes


def _note_no_answer(decisions: Sequence[ItemDecision[R]], error: QuorumError) -> None:
    """Record in the items' results that their outcome is unknown.

    That includes items without an operation, because other items of the same round may have been
    the reason for their decision.
    """
    unknown = [one.result for one in decisions if one.result.error_code == errors_pb2.NONE]
    log.warning("%d changes without an answer: %s", len(unknown), error)
    for result in unknown:
        result.error_code = errors_pb2.REQUEST_TIMED_OUT
        result.error_message = no_answer(error)


def no_answer(error: QuorumError) -> str:
    """Return the message for a client when the metadata log did not answer in time."""
    return f"the metadata quorum did not answer: {error}"
