"""Changes that wait together are decided one after another, and written together.

A round of the quorum costs the same for one change and for a hundred. So whoever comes first in the
event queue decides for all who wait by then, each on the image that those before it will leave
behind, and one commit serves them all; answers go out together. Nobody waits for others to come: a
change that is alone is written at once.

An image foreseen is an image guessed: another writer may come in between. As ever, what may not be
overtaken stands in an operation's conditions, and ``apply`` has the last word; whoever is refused
there hears of it, and the others do not.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from broker.controller import on_behalf
from broker.controller.event_queue import EventQueue, Priority
from broker.controller.on_behalf import Asked
from broker.controller.outcomes import ItemDecision, note_no_answer, note_outcomes, operations_of
from broker.controller.writer import Share, Writer
from metadata_log.apply import apply
from metadata_log.image import Image
from metadata_log.records import Operation, OperationResult, Transaction
from metadata_log.types import MetadataOffset
from quorum.errors import QuorumError, SessionLost

D = TypeVar("D", bound=ItemDecision)
T = TypeVar("T")

OPERATIONS_PER_ROUND: Final = 500
"""Then others have their turn: broker failures go ahead of admin requests."""


class Decided(NamedTuple, Generic[T]):
    """What a request comes to: its decision, and what has to be written for it to be true."""

    decision: T
    operations: Sequence[Operation]


Decide = Callable[[Image], Decided[T]]
"""Pure; may raise what its asker is to be told."""


class _Waiting(Generic[T]):
    """One request on its way into a round, and what became of it there."""

    def __init__(self, decide: Decide[T]) -> None:
        self.decide = decide
        self.asked: Asked | None = on_behalf.current()
        self.decision: T | None = None
        self.results: Sequence[OperationResult] | None = None
        self.error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.results is not None or self.error is not None


class Rounds:
    """The rounds of one writer. ``together`` False: each of one request."""

    def __init__(self, writer: Writer, events: EventQueue, *, together: bool = True) -> None:
        self._writer = writer
        self._events = events
        self._together = together
        self._waiting: deque[_Waiting[Any]] = deque()

    async def carry_out(
        self, decide: Callable[[Image], Sequence[D]], *, validate_only: bool = False
    ) -> Sequence[D]:
        """Decide item by item and write; what became of each stands in its result.

        ``validate_only``: decide, write nothing.

        Raises:
            LeftOffice, SessionLost: another controller is in office, or soon will be.
        """
        kept: list[Sequence[D]] = []

        def items(image: Image) -> Decided[Sequence[D]]:
            decisions = decide(image)
            kept.append(decisions)
            return Decided(decisions, () if validate_only else operations_of(decisions))

        try:
            decided, results = await self.write(items)
        except SessionLost:
            raise
        except QuorumError as error:
            (decisions,) = kept
            note_no_answer(decisions, error)
            return decisions
        if not validate_only:
            note_outcomes(decided, results)
        return decided

    async def write(self, decide: Decide[T]) -> tuple[T, Sequence[OperationResult]]:
        """Decide and write; the decision, and one result per operation.

        Raises:
            LeftOffice, QuorumError: as ``Writer.commit``.
            Exception: what ``decide`` raised.
        """
        waiting = _Waiting(decide)
        self._waiting.append(waiting)
        return await self._events.run(Priority.ADMIN, lambda: self._done(waiting))

    async def _done(self, waiting: _Waiting[T]) -> tuple[T, Sequence[OperationResult]]:
        """In its turn in the event queue: by a round of its own, unless an earlier one had it."""
        if not waiting.is_done:
            await self._round()
        if waiting.error is not None:
            raise waiting.error
        assert waiting.results is not None, "rounds are in the order of the queue"
        return cast("T", waiting.decision), waiting.results

    async def _round(self) -> None:
        shares = self._decide_all()
        try:
            results = await self._writer.commit_together(list(shares.values()))
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            for waiting in shares:
                waiting.error = error
        else:
            for waiting, own in zip(shares, results, strict=True):
                waiting.results = own

    def _decide_all(self) -> dict[_Waiting[Any], Share]:
        """What each of the round needs to have written; who was told no needs nothing."""
        image, shares, operations = self._writer.image, dict[_Waiting[Any], Share](), 0
        limit = OPERATIONS_PER_ROUND if self._together else 0
        while self._waiting and (not shares or operations < limit):
            waiting = self._waiting.popleft()
            try:
                waiting.decision, needed = waiting.decide(image)
            except Exception as error:  # noqa: BLE001 - handed to the one who waits
                waiting.error = error
                continue
            shares[waiting] = Share(waiting.asked, needed)
            operations += len(needed)
            if self._waiting:
                image = foreseen(image, needed)
        return shares


def foreseen(image: Image, operations: Sequence[Operation]) -> Image:
    """The image after ``operations``, if nobody else writes before."""
    if not operations:
        return image
    transaction = Transaction(operations=tuple(operations), atomic=False)
    return apply(image, MetadataOffset(image.offset + 1), transaction).image
