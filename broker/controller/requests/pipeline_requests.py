"""The handler for pipelines: one step of one pipeline per request."""

from collections.abc import Callable
from typing import Final

import msgspec

from quorate.broker.changes.table import ALTER_PIPELINE
from quorate.broker.common.errors import CODE_OF_RESULT, KafkaError
from quorate.broker.controller.command_pipeline import (
    CommandPipeline,
    DecisionWriter,
    PendingDecision,
)
from quorate.broker.controller.managers import pipeline_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.managers.pipeline_manager import PipelineDecision
from quorate.broker.controller.tenure import Requester
from quorate.common.types import MetadataOffset
from quorate.metadata_log.codec import encode_pipeline
from quorate.metadata_log.image import Image, PipelineState
from quorate.metadata_log.records import OperationResult, PipelineSet, ResultCode
from quorate_proto.v1 import admin_pb2

ATTEMPTS_MAX: Final = 5
"""The attempts at one pipeline that others change at the same time."""


class PipelineRequests:
    """The handler of AlterPipeline.

    ``clock_ms`` is the wall clock, in milliseconds since the epoch.
    """

    def __init__(
        self, tenure: ControllerTenure, decisions: DecisionWriter, clock_ms: Callable[[], int]
    ) -> None:
        self._tenure = tenure
        self._decisions = decisions
        self._clock_ms = clock_ms

    def register(self, pipeline: CommandPipeline) -> None:
        """Handle this change in ``pipeline``."""
        pipeline.register(ALTER_PIPELINE, self.alter)

    async def alter(
        self, request: admin_pb2.AlterPipelineRequest, requester: Requester
    ) -> admin_pb2.AlterPipelineResponse:
        """Take one step of one pipeline, in one transaction or not at all."""
        after = await self._write(request, requester)
        if after is None:
            return admin_pb2.AlterPipelineResponse()
        return admin_pb2.AlterPipelineResponse(pipeline=encode_pipeline(request.name, after))

    async def _write(
        self, request: admin_pb2.AlterPipelineRequest, requester: Requester
    ) -> PipelineState | None:
        """Decide and write. Repeat if somebody else changed the pipeline in between.

        Raises:
            KafkaError: The step is refused.
        """
        result = OperationResult()
        for _ in range(ATTEMPTS_MAX):
            decision, results = await self._decisions.write(
                lambda image: self._decide(image, request), requester
            )
            if not results:
                return decision.pipeline
            (result,) = results
            if result.ok:
                return _as_written(decision, result.version)
            if result.code is not ResultCode.VERSION_CONFLICT:
                break
        raise KafkaError(CODE_OF_RESULT[result.code], result.detail)

    def _decide(
        self, image: Image, request: admin_pb2.AlterPipelineRequest
    ) -> PendingDecision[PipelineDecision]:
        decision = pipeline_manager.alter(
            image, request, tenure=self._tenure, now_ms=self._clock_ms()
        )
        return PendingDecision(decision, [] if decision.operation is None else [decision.operation])


def _as_written(decision: PipelineDecision, version: int) -> PipelineState | None:
    after, operation = decision
    if after is None or operation is None:
        return None
    begins = any(
        isinstance(one, PipelineSet) and one.run_epoch == PipelineSet.BEGIN
        for one in operation.records
    )
    run_epoch = version if begins else after.run_epoch
    return msgspec.structs.replace(after, version=MetadataOffset(version), run_epoch=run_epoch)
