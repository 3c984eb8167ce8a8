"""The handlers for feature levels: the first level of a new cluster, and UpdateFeatures (B4)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from quorate.broker.changes.table import UPDATE_FEATURES
from quorate.broker.control.ports import VoterVersions
from quorate.broker.controller.command_pipeline import CommandPipeline, note_outcomes
from quorate.broker.controller.managers import feature_manager
from quorate.broker.controller.managers.decisions import ControllerTenure, operations_of
from quorate.broker.controller.managers.feature_manager import FeatureDecision
from quorate.broker.controller.tenure import (
    EventPriority,
    EventQueue,
    Requester,
    TenureEnded,
    Writer,
)
from quorate.metadata_log.records import Operation
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import admin_pb2

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 100


class FeatureRequests:
    """The handler of UpdateFeatures, and the first level of a new cluster."""

    def __init__(
        self,
        *,
        tenure: ControllerTenure,
        writer: Writer,
        events: EventQueue,
        voters: VoterVersions,
        draw_key: Callable[[], bytes],
    ) -> None:
        """``draw_key`` returns random bytes, for a key that stays in the metadata log."""
        self._tenure = tenure
        self._writer = writer
        self._events = events
        self._voters = voters
        self._draw_key = draw_key

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle this change in ``pipeline``."""
        pipeline.register(UPDATE_FEATURES, self.update)

    def start(self) -> None:
        """Write what a cluster has from its first controller on, or from a level on."""
        self._events.put(EventPriority.BROKERS, self._put_down)

    async def _put_down(self) -> None:
        """Write the first level, and what the levels in force allow. Decide again if a broker
        registers that supports less.
        """
        try:
            while True:
                image = self._writer.image
                first = feature_manager.first_level(
                    image, self._tenure
                ) or feature_manager.first_decoy_key(image, self._tenure, self._draw_key)
                if first is None:
                    return
                await self._written(first)
        except TenureEnded:
            return

    async def _written(self, first: Operation) -> None:
        try:
            await self._writer.commit([first])
        except QuorumError as error:
            log.warning("a first value waits for the quorum: %s", error)
            await asyncio.sleep(RETRY_INTERVAL_MS / 1000)

    async def update(
        self, request: admin_pb2.UpdateFeaturesRequest, requester: Requester
    ) -> admin_pb2.UpdateFeaturesResponse:
        """Raise or lower levels. Return one result per feature."""
        decisions = await self._events.run(
            EventPriority.ADMIN, lambda: self._decide_and_write(request, requester)
        )
        for decision in decisions:
            log.info(
                "UpdateFeatures for %s of client %r: %s",
                request.context.principal_name or "a direct client",
                request.context.client_id,
                decision.result.error_message or f"{decision.result.name} {decision.result.level}",
            )
        self.start()
        return admin_pb2.UpdateFeaturesResponse(results=[one.result for one in decisions])

    async def _decide_and_write(
        self, request: admin_pb2.UpdateFeaturesRequest, requester: Requester
    ) -> list[FeatureDecision]:
        """Query what the voters can read if that matters, then decide and write."""
        voters_read = 0
        if feature_manager.needs_voters(request.updates):
            voters_read = await self._voters.metadata_version_max()
        decisions = feature_manager.update(
            self._writer.image, request.updates, tenure=self._tenure, voters_read=voters_read
        )
        if not request.validate_only:
            results = await self._writer.commit(operations_of(decisions), requester)
            note_outcomes(decisions, results)
        return decisions
