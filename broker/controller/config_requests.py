"""Changes of configuration at the controller."""

from collections.abc import Callable, Sequence

from broker.controller.managers import configs
from broker.controller.managers.configs import ConfigDecision
from broker.controller.managers.office import Office
from broker.controller.rounds import Rounds
from metadata_log.image import Image
from quorate_proto.v1 import admin_pb2


class ConfigRequests:
    """Taken in, decided, written, answered entity by entity."""

    def __init__(self, office: Office, rounds: Rounds) -> None:
        self._office = office
        self._rounds = rounds

    async def alter(
        self, request: admin_pb2.IncrementalAlterConfigsRequest
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Change some keys; brokers learn of it by watch."""
        results = await self._carried_out(
            lambda image: configs.alter(image, request.changes, office=self._office),
            validate_only=request.validate_only,
        )
        return admin_pb2.IncrementalAlterConfigsResponse(results=results)

    async def replace(
        self, request: admin_pb2.AlterConfigsRequest
    ) -> admin_pb2.AlterConfigsResponse:
        """Set all that is named, unset all else."""
        results = await self._carried_out(
            lambda image: configs.replace(image, request.replacements, office=self._office),
            validate_only=request.validate_only,
        )
        return admin_pb2.AlterConfigsResponse(results=results)

    async def _carried_out(
        self, decide: Callable[[Image], Sequence[ConfigDecision]], *, validate_only: bool
    ) -> list[admin_pb2.ConfigResult]:
        decisions = await self._rounds.carry_out(decide, validate_only=validate_only)
        return [decision.result for decision in decisions]
