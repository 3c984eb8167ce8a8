"""Writes a controller's decisions: batched, and seen in the image before the next is made."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

from broker.control.ports import Images, Transactor
from broker.controller import on_behalf
from broker.controller.event_queue import LeftOffice
from broker.controller.managers.batches import split
from metadata_log.image import Image
from metadata_log.records import Operation, OperationResult, ResultCode, TransactionResult

log = logging.getLogger(__name__)

T = TypeVar("T")


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
        if not operations:
            return []
        if not self._may_act():
            raise LeftOffice
        image = self._images.image
        signed = [on_behalf.noted(image, operation) for operation in operations]
        outcomes = await asyncio.gather(
            *(self._quorum.transact(batch, atomic=False) for batch in split(signed)),
            return_exceptions=True,
        )
        results = [_raised(outcome) for outcome in outcomes]
        answers = list(chain.from_iterable(result.results for result in results))
        fenced = next((a for a in answers if a.code is ResultCode.CONTROLLER_FENCED), None)
        if fenced is not None:
            log.info("a write was refused: %s", fenced.detail)
            self._on_deposed()
            raise LeftOffice
        last = max(result.offset for result in results)
        if (asked := on_behalf.current()) is not None:
            asked.written(last)
        await self._images.wait_for(last)
        return answers


def _raised(outcome: TransactionResult | BaseException) -> TransactionResult:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
