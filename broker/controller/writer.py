"""Writes a controller's decisions: batched, and seen in the image before the next is made."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from broker.control.ports import Images, Transactor
from broker.controller import on_behalf
from broker.controller.event_queue import LeftOffice
from broker.controller.managers.batches import split
from broker.controller.on_behalf import Asked
from metadata_log.image import Image
from metadata_log.records import Operation, OperationResult, ResultCode, TransactionResult
from metadata_log.types import MetadataOffset

log = logging.getLogger(__name__)


class Share(NamedTuple):
    """What is written for one request; ``asked`` None: for the controller itself."""

    asked: Asked | None
    operations: Sequence[Operation]


class Writer:
    """The one way from a decision to the metadata log.

    ``on_deposed`` is told when the quorum says that this epoch is no longer the current one.
    ``may_act``: whether the controller is awake, see ``watchdog``.
    """

    def __init__(
        self,
        quorum: Transactor,
        images: Images,
        on_deposed: Callable[[], None],
        *,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._quorum = quorum
        self._images = images
        self._on_deposed = on_deposed
        self._may_act = may_act

    @property
    def image(self) -> Image:
        """The newest image."""
        return self._images.image

    async def commit(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Commit operations that stand alone, in as few transactions as they fit in (C3).

        Returns one result per operation, with the image at least as new as all of them.

        Raises:
            LeftOffice: another controller is in office.
            QuorumError: the quorum did not answer; some of it may have been applied.
        """
        (results,) = await self.commit_together([Share(on_behalf.current(), operations)])
        return results

    async def commit_together(self, shares: Sequence[Share]) -> list[list[OperationResult]]:
        """As ``commit`` for several requests at once, in order: the results of each."""
        if not any(share.operations for share in shares):
            return [[] for _ in shares]
        if not self._may_act():
            raise LeftOffice
        image = self._images.image
        signed = (
            on_behalf.noted(image, operation, share.asked)
            for share in shares
            for operation in share.operations
        )
        outcomes = await asyncio.gather(
            *(self._quorum.transact(batch, atomic=False) for batch in split(signed)),
            return_exceptions=True,
        )
        written = [_raised(outcome) for outcome in outcomes]
        answers = [(answer, one.offset) for one in written for answer in one.results]
        fenced = next((a for a, _ in answers if a.code is ResultCode.CONTROLLER_FENCED), None)
        if fenced is not None:
            log.info("a write was refused: %s", fenced.detail)
            self._on_deposed()
            raise LeftOffice
        await self._images.wait_for(max(one.offset for one in written))
        return _shared_out(shares, answers)


def _shared_out(
    shares: Sequence[Share], answers: Iterable[tuple[OperationResult, MetadataOffset]]
) -> list[list[OperationResult]]:
    left = iter(answers)
    results = []
    for share in shares:
        own = list(islice(left, len(share.operations)))
        if share.asked is not None and own:
            share.asked.written(max(offset for _, offset in own))
        results.append([answer for answer, _ in own])
    return results


def _raised(outcome: TransactionResult | BaseException) -> TransactionResult:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
