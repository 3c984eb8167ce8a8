"""Changes of access control entries at the controller."""

import itertools

from broker.controller.managers import acls
from broker.controller.managers.office import Office
from broker.controller.rounds import Rounds
from metadata_log.image import Image
from quorate_proto.v1 import admin_pb2


class AclRequests:
    """Taken in, decided, written, answered item by item."""

    def __init__(self, office: Office, rounds: Rounds) -> None:
        self._office = office
        self._rounds = rounds

    async def create(self, request: admin_pb2.CreateAclsRequest) -> admin_pb2.CreateAclsResponse:
        """Add entries; brokers learn of them by watch."""
        decisions = await self._rounds.carry_out(
            lambda image: acls.create(image, request.bindings, office=self._office)
        )
        return admin_pb2.CreateAclsResponse(results=[one.result for one in decisions])

    async def delete(self, request: admin_pb2.DeleteAclsRequest) -> admin_pb2.DeleteAclsResponse:
        """Remove entries. Where that failed, nothing is said to be gone: asking again is safe."""

        results: list[admin_pb2.DeleteAclsResult] = []

        def delete(image: Image) -> list[acls.AclDeletion]:
            deletions = acls.delete(image, request.filters, office=self._office)
            results.extend(parts[0].result for parts in deletions)
            return list(itertools.chain.from_iterable(deletions))

        await self._rounds.carry_out(delete)
        for result in results:
            if result.error_code:
                result.ClearField("deleted")
        return admin_pb2.DeleteAclsResponse(results=results)
