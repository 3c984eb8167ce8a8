"""Changes of configuration at the controller."""

import logging

from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import configs
from broker.controller.managers.office import Office
from broker.controller.outcomes import carry_out
from broker.controller.writer import Writer
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import SessionLost

log = logging.getLogger(__name__)


class ConfigRequests:
    """Taken in, decided, written, answered entity by entity."""

    def __init__(self, office: Office, writer: Writer, events: EventQueue) -> None:
        self._office = office
        self._writer = writer
        self._events = events

    async def alter(
        self, request: admin_pb2.IncrementalAlterConfigsRequest
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Set and remove keys; brokers learn of it by watch."""

        async def alter() -> list[admin_pb2.ConfigResult]:
            decisions = configs.alter(self._writer.image, request.changes, office=self._office)
            await carry_out(self._writer, decisions)
            return [decision.result for decision in decisions]

        try:
            results = await self._events.run(Priority.ADMIN, alter)
        except (LeftOffice, SessionLost):
            return admin_pb2.IncrementalAlterConfigsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        log.info(
            "IncrementalAlterConfigs for %s of client %r: %s",
            request.context.principal_name or "a direct client",
            request.context.client_id,
            [f"{one.entity_type} {one.entity_name}" for one in results],
        )
        return admin_pb2.IncrementalAlterConfigsResponse(results=results)
