"""Inter-broker protocol 1: the broker that receives an administration request carries it out by
itself (F6).

It decides as a controller would, with the same managers. It writes on its own authority: with its
broker epoch instead of a controller epoch, and by compare-and-set on the newest state of all
administration that it has seen. If another broker was faster, it decides again from what that
broker wrote.
"""

import logging
from collections.abc import Sequence
from typing import Final

from quorate.broker.changes.audit_log import KeepAuditEntries
from quorate.broker.changes.table import A, Change, Q
from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.ports import Transactor
from quorate.broker.controller.command_pipeline import CommandPipeline, DecisionWriter
from quorate.broker.controller.managers.decisions import ControllerTenure, split
from quorate.broker.controller.requests.administration_requests import (
    AdministrationContext,
    AdministrationRequests,
)
from quorate.broker.controller.requests.token_requests import TokenRequests
from quorate.broker.controller.tenure import (
    EventQueue,
    TenureEnded,
    Writer,
    WriteRequest,
    with_change_note,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.common.types import NO_BROKER, ControllerEpoch
from quorate.metadata_log.image import Image
from quorate.metadata_log.paths import ADMINISTRATION, BROKER_IDS, broker_path
from quorate.metadata_log.records import (
    AtVersion,
    Condition,
    ControllerEpochIs,
    Operation,
    OperationResult,
    ResultCode,
)
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 50
"""The number of attempts. Each time this broker has to repeat, another one has made progress."""

NO_TENURE: Final = ControllerTenure(NO_BROKER, ControllerEpoch(0))
"""The tenure of no controller. Operations that are decided under it are rewritten before they are
written."""


class ConcurrentChange(Exception):
    """Raised when another broker changed something after this was decided.

    The image contains that change by then.
    """


class Bridge:
    """Carries out administration requests at the broker that receives them. ``start`` and ``close``
    are called once."""

    def __init__(
        self,
        identity: BrokerIdentity,
        *,
        quorum: Transactor,
        images: MetadataFollower,
        context: AdministrationContext,
        audit_log: KeepAuditEntries,
    ) -> None:
        self._events = EventQueue(on_fault=self._go_on)
        writer = BridgeWriter(identity, quorum, images)
        decisions = DecisionWriter(writer, self._events, together=False)
        self._pipeline = CommandPipeline(
            controller_epoch=NO_TENURE.controller_epoch,
            images=images,
            authorizer=Authorizer(images, AuthorizerSettings.of(context.config)),
            audit_log=audit_log,
        )
        AdministrationRequests(NO_TENURE, decisions, context.config).register(self._pipeline)
        TokenRequests(
            context, tenure=NO_TENURE, writer=writer, events=self._events, decisions=decisions
        ).register(self._pipeline)

    def _go_on(self) -> None:
        """Do nothing about a failed event, because there is no tenure to end."""

    def start(self) -> None:
        self._events.start()

    async def close(self) -> None:
        await self._events.close()

    async def perform(self, change: Change[Q, A], request: Q) -> A:
        """Carry a change out, and decide again whenever another broker was faster.

        NOT_CONTROLLER means that this broker is not registered, or that the protocol was raised
        meanwhile.
        """
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._pipeline.run(change, request)
            except ConcurrentChange:
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
        identity: BrokerIdentity,
        quorum: Transactor,
        images: MetadataFollower,
    ) -> None:
        super().__init__(quorum, images)
        self._identity = identity
        self._decided_from: int | None = None

    @property
    def image(self) -> Image:
        """The newest image. The writer compares with the oldest image that was read since the last
        write."""
        image = self._images.image
        if self._decided_from is None:
            self._decided_from = image.administered
        return image

    async def commit_together(
        self, requests: Sequence[WriteRequest]
    ) -> list[list[OperationResult]]:
        """Commit one request after the other. A round of this writer has only one request.

        Raises:
            ConcurrentChange: Another broker was faster. Transactions before that one took effect.
            TenureEnded: This broker may not write, because it is not registered or the protocol was
                raised.
        """
        return [await self._commit_one(request) for request in requests]

    async def _commit_one(self, request: WriteRequest) -> list[OperationResult]:
        """Commit one transaction after the other, each based on the one before."""
        seen, self._decided_from = self._decided_from, None
        answers: list[OperationResult] = []
        for batch in split(with_change_note(self._images.image, request)):
            epoch = self._identity.epoch
            if epoch is None:
                raise TenureEnded
            expected = self._images.image.administered if seen is None else seen
            conditions = (
                AtVersion(path=ADMINISTRATION, version=expected),
                AtVersion(path=broker_path(self._identity.broker_id), version=epoch),
            )
            own = [_on_authority(operation, conditions) for operation in batch]
            result = await self._quorum.transact(own, atomic=False)
            image = await self._images.wait_for(result.offset)
            _raise_for(result.results)
            if request.requester is not None:
                request.requester.written(result.offset)
            answers.extend(result.results)
            seen = result.offset if image.administered >= result.offset else expected
        return answers


def _on_authority(operation: Operation, conditions: tuple[Condition, ...]) -> Operation:
    kept = tuple(one for one in operation.conditions if not isinstance(one, ControllerEpochIs))
    return Operation(records=operation.records, conditions=(*conditions, *kept))


def _raise_for(results: Sequence[OperationResult]) -> None:
    """Raise for refusals that are about the writer and not about the data. All operations share
    them."""
    for one in results:
        if one.code in (ResultCode.CONTROLLER_FENCED, ResultCode.SESSION_GONE):
            raise TenureEnded
        if one.code is ResultCode.CONDITION_FAILED and one.detail.startswith(ADMINISTRATION):
            raise ConcurrentChange
        if one.code is ResultCode.CONDITION_FAILED and one.detail.startswith(BROKER_IDS):
            raise TenureEnded
