"""Inter-broker protocol 1: the broker that is asked writes administration by itself (F6).

It decides as a controller would, with the same managers, and writes on its own authority: its
broker epoch instead of a controller's, and by compare-and-set on what it has seen of all
administration. Who was overtaken by another broker decides again, from what that one wrote.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from broker.control.changes import A, Change, Q
from broker.control.ports import Images, Transactor
from broker.controller import on_behalf
from broker.controller.administration import Administration, Means
from broker.controller.door import AuditTrail, Door
from broker.controller.event_queue import EventQueue, LeftOffice
from broker.controller.implementations import Implementations
from broker.controller.managers.batches import split
from broker.controller.managers.office import Office
from broker.controller.writer import Share, Writer
from broker.security.authorizer import Authorizer, AuthorizerSettings
from metadata_log.image import Image
from metadata_log.paths import ADMINISTRATION, BROKER_IDS, broker_path
from metadata_log.records import (
    AtVersion,
    Condition,
    ControllerEpochIs,
    Operation,
    OperationResult,
    ResultCode,
)
from metadata_log.types import NO_BROKER, BrokerEpoch, BrokerId, ControllerEpoch
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 50
"""Each time this broker is overtaken, another one got on."""

NOBODY: Final = Office(NO_BROKER, ControllerEpoch(0))
"""In place of an office: what is decided under it is rewritten before it is written."""


class Overtaken(Exception):
    """Another broker changed something since this was decided; it is in the image by now."""


class Bridge:
    """Carries bridged changes out at the broker that is asked. ``start`` once, ``close`` once."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        quorum: Transactor,
        images: Images,
        means: Means,
        trail: AuditTrail,
    ) -> None:
        self._events = EventQueue(on_fault=lambda: None)
        found = Implementations()
        writer = BridgeWriter(broker_id, broker_epoch, quorum, images)
        administration = Administration(
            means, office=NOBODY, writer=writer, events=self._events, together=False
        )
        administration.add_to(found)
        self._door = Door(
            found,
            controller_epoch=NOBODY.controller_epoch,
            trail=trail,
            clock_ms=means.clock_ms,
            authorizer=Authorizer(lambda: images.image.acls, AuthorizerSettings.of(means.config)),
            image=lambda: images.image,
        )

    def start(self) -> None:
        self._events.start()

    async def close(self) -> None:
        await self._events.close()

    async def carry_out(self, change: Change[Q, A], request: Q) -> A:
        """Decided again whenever another broker was faster.

        NOT_CONTROLLER: this broker is not registered, or the protocol has been raised meanwhile.
        """
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._door.carry_out(change, request)
            except Overtaken:
                log.info("%s is decided again: another broker was faster", change.rpc)
        return change.failed(
            request,
            errors_pb2.REQUEST_TIMED_OUT,
            f"other brokers were faster {ATTEMPTS_MAX} times: try again",
        )


class BridgeWriter(Writer):
    """Writes on the authority of a registered broker, by compare-and-set."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        quorum: Transactor,
        images: Images,
    ) -> None:
        super().__init__(quorum, images, on_deposed=lambda: None)
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._decided_from: int | None = None

    @property
    def image(self) -> Image:
        """The newest image; the oldest one looked at since the last write is what counts."""
        image = self._images.image
        if self._decided_from is None:
            self._decided_from = image.administered
        return image

    def _noted(self, operations: Sequence[Operation]) -> Iterator[Operation]:
        image, asked = self._images.image, on_behalf.current()
        return (on_behalf.noted(image, one, asked) for one in operations)

    async def commit_together(self, shares: Sequence[Share]) -> list[list[OperationResult]]:
        """One share after the other: rounds of this writer are of one request."""
        results = []
        for share in shares:
            with on_behalf.acting(share.asked):
                results.append(await self.commit(share.operations))
        return results

    async def commit(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """One transaction after the other, each on what the one before made.

        Raises:
            Overtaken: another broker was faster; transactions before that one took effect.
            LeftOffice: this broker may not write: it is not registered, or the protocol was raised.
        """
        seen, self._decided_from = self._decided_from, None
        answers: list[OperationResult] = []
        for batch in split(self._noted(operations)):
            epoch = self._broker_epoch()
            if epoch is None:
                raise LeftOffice
            expected = self._images.image.administered if seen is None else seen
            conditions = (
                AtVersion(path=ADMINISTRATION, version=expected),
                AtVersion(path=broker_path(self._broker_id), version=epoch),
            )
            own = [_on_authority(operation, conditions) for operation in batch]
            result = await self._quorum.transact(own, atomic=False)
            image = await self._images.wait_for(result.offset)
            _raise_for(result.results)
            if (asked := on_behalf.current()) is not None:
                asked.written(result.offset)
            answers.extend(result.results)
            seen = result.offset if image.administered >= result.offset else expected
        return answers


def _on_authority(operation: Operation, conditions: tuple[Condition, ...]) -> Operation:
    kept = tuple(one for one in operation.conditions if not isinstance(one, ControllerEpochIs))
    return Operation(records=operation.records, conditions=(*conditions, *kept))


def _raise_for(results: Sequence[OperationResult]) -> None:
    """Refusals that are about the writer, not about what it wrote: all operations share them."""
    for one in results:
        if one.code in (ResultCode.CONTROLLER_FENCED, ResultCode.SESSION_GONE):
            raise LeftOffice
        if one.code is ResultCode.CONDITION_FAILED and one.detail.startswith(ADMINISTRATION):
            raise Overtaken
        if one.code is ResultCode.CONDITION_FAILED and one.detail.startswith(BROKER_IDS):
            raise LeftOffice
