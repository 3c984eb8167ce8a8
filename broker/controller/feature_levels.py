"""Puts down the level a new cluster begins at, and carries out what clients want of levels (B4)."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from broker.control.ports import VoterVersions
from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import feature_levels
from broker.controller.managers.feature_levels import FeatureDecision
from broker.controller.managers.office import Office
from broker.controller.writer import Writer
from broker.errors import CODE_OF_RESULT
from metadata_log.records import Operation
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import QuorumError, SessionLost

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 100


class FeatureLevels:
    """The features of one controller's tenure."""

    def __init__(
        self, *, office: Office, writer: Writer, events: EventQueue, voters: VoterVersions
    ) -> None:
        self._office = office
        self._writer = writer
        self._events = events
        self._voters = voters

    def start(self) -> None:
        self._events.put(Priority.BROKERS, self._put_down)

    async def _put_down(self) -> None:
        """A broker may register in between that understands less: then decide again."""
        try:
            while True:
                first = feature_levels.first_level(self._writer.image, self._office)
                if first is None:
                    return
                await self._written(first)
        except LeftOffice:
            return

    async def _written(self, first: Operation) -> None:
        try:
            await self._writer.commit([first])
        except QuorumError as error:
            log.warning("the protocol level waits for the quorum: %s", error)
            await asyncio.sleep(RETRY_INTERVAL_MS / 1000)

    async def update(
        self, request: admin_pb2.UpdateFeaturesRequest
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Raise or lower levels; one result per feature."""

        async def decided() -> list[FeatureDecision]:
            voters_read = 0
            if feature_levels.needs_voters(request.updates):
                voters_read = await self._voters.metadata_version_max()
            decisions = feature_levels.update(
                self._writer.image, request.updates, office=self._office, voters_read=voters_read
            )
            if not request.validate_only:
                await self._carried_out(decisions)
            return decisions

        try:
            decisions = await self._events.run(Priority.ADMIN, decided)
        except SessionLost:
            raise
        except QuorumError as error:
            return _failed(request, f"the metadata quorum did not answer: {error}")
        for decision in decisions:
            log.info(
                "UpdateFeatures for %s of client %r: %s",
                request.context.principal_name or "a direct client",
                request.context.client_id,
                decision.result.error_message or f"{decision.result.name} {decision.result.level}",
            )
        return admin_pb2.UpdateFeaturesResponse(results=[one.result for one in decisions])

    async def _carried_out(self, decisions: Sequence[FeatureDecision]) -> None:
        wanted = [one for one in decisions if one.operation is not None]
        outcomes = await self._writer.commit([one.operation for one in wanted if one.operation])
        for decision, outcome in zip(wanted, outcomes, strict=True):
            if not outcome.ok:
                decision.result.error_code = CODE_OF_RESULT[outcome.code]
                decision.result.error_message = outcome.detail


def _failed(
    request: admin_pb2.UpdateFeaturesRequest, message: str
) -> admin_pb2.UpdateFeaturesResponse:
    return admin_pb2.UpdateFeaturesResponse(
        results=[
            admin_pb2.FeatureResult(
                name=one.name, error_code=errors_pb2.REQUEST_TIMED_OUT, error_message=message
            )
            for one in request.updates
        ]
    )
