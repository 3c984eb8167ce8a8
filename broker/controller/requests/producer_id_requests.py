"""The handler for blocks of producer ids, which brokers request."""

from quorate.broker.changes import table
from quorate.broker.common.errors import CODE_OF_RESULT
from quorate.broker.controller.command_pipeline import (
    CommandPipeline,
    DecisionWriter,
    PendingDecision,
)
from quorate.broker.controller.managers import producer_id_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.producer_id_manager import ProducerIdDecision
from quorate.broker.controller.tenure import Requester
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2


class ProducerIdRequests:
    """The handler of AllocateProducerIds, during one controller's tenure."""

    def __init__(self, tenure: ControllerTenure, decisions: DecisionWriter) -> None:
        self._tenure = tenure
        self._decisions = decisions

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle this change in ``pipeline``."""
        pipeline.register(table.ALLOCATE_PRODUCER_IDS, self.allocate)

    async def allocate(
        self, request: admin_pb2.AllocateProducerIdsRequest, requester: Requester
    ) -> admin_pb2.AllocateProducerIdsResponse:
        """Allocate a block of producer ids to a broker in its current incarnation."""

        def decide(image: Image) -> PendingDecision[ProducerIdDecision]:
            decision = producer_id_manager.allocate(image, request, tenure=self._tenure)
            return PendingDecision(
                decision, [] if decision.operation is None else [decision.operation]
            )

        decision, results = await self._decisions.write(decide, requester)
        for result in results:
            if not result.ok:
                return admin_pb2.AllocateProducerIdsResponse(error_code=CODE_OF_RESULT[result.code])
        return decision.response
