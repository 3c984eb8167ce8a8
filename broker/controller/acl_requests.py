"""Changes of access control entries at the controller."""

import itertools

from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import acls
from broker.controller.managers.office import Office
from broker.controller.outcomes import carry_out
from broker.controller.writer import Writer
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import SessionLost


class AclRequests:
    """Taken in, decided, written, answered item by item."""

    def __init__(self, office: Office, writer: Writer, events: EventQueue) -> None:
        self._office = office
        self._writer = writer
        self._events = events

    async def create(self, request: admin_pb2.CreateAclsRequest) -> admin_pb2.CreateAclsResponse:
        """Add entries; brokers learn of them by watch."""

        async def create() -> list[admin_pb2.AclResult]:
            decisions = acls.create(self._writer.image, request.bindings, office=self._office)
            await carry_out(self._writer, decisions)
            return [decision.result for decision in decisions]

        try:
            results = await self._events.run(Priority.ADMIN, create)
        except (LeftOffice, SessionLost):
            return admin_pb2.CreateAclsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        return admin_pb2.CreateAclsResponse(results=results)

    async def delete(self, request: admin_pb2.DeleteAclsRequest) -> admin_pb2.DeleteAclsResponse:
        """Remove entries. Where that failed, nothing is said to be gone: asking again is safe."""

        async def delete() -> list[admin_pb2.DeleteAclsResult]:
            deletions = acls.delete(self._writer.image, request.filters, office=self._office)
            await carry_out(self._writer, list(itertools.chain.from_iterable(deletions)))
            return [parts[0].result for parts in deletions]

        try:
            results = await self._events.run(Priority.ADMIN, delete)
        except (LeftOffice, SessionLost):
            return admin_pb2.DeleteAclsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        for result in results:
            if result.error_code:
                result.ClearField("deleted")
        return admin_pb2.DeleteAclsResponse(results=results)
