"""Changes of pipelines at the controller."""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from broker.controller.managers import pipelines
from broker.controller.managers.office import Office
from broker.controller.managers.pipelines import PipelineDecision
from broker.controller.rounds import Decided, Rounds
from broker.errors import CODE_OF_RESULT, KafkaError
from metadata_log.image import Image, Pipeline
from metadata_log.record_codec import encode_pipeline
from metadata_log.records import OperationResult, PipelineSet, ResultCode
from metadata_log.types import MetadataOffset
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorum.errors import QuorumError, SessionLost

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 5
"""At one pipeline that others change at the same time."""


class PipelineRequests:
    """Taken in, decided, written, answered. ``clock_ms``: wall clock, ms since the epoch."""

    def __init__(self, office: Office, rounds: Rounds, clock_ms: Callable[[], int]) -> None:
        self._office = office
        self._rounds = rounds
        self._clock_ms = clock_ms

    async def alter(
        self, request: admin_pb2.AlterPipelineRequest
    ) -> admin_pb2.AlterPipelineResponse:
        """One step of one pipeline: it is taken in one transaction, or not at all."""
        try:
            after = await self._write(request)
        except KafkaError as error:
            return _failed(error.code, error.message)
        except SessionLost:
            raise
        except QuorumError as error:
            log.warning("pipeline %s without an answer: %s", request.name, error)
            return _failed(
                errors_pb2.REQUEST_TIMED_OUT, f"the metadata quorum did not answer: {error}"
            )
        if after is None:
            return admin_pb2.AlterPipelineResponse()
        return admin_pb2.AlterPipelineResponse(pipeline=encode_pipeline(request.name, after))

    async def _write(self, request: admin_pb2.AlterPipelineRequest) -> Pipeline | None:
        """Decide and write; again if somebody else changed the pipeline in between."""
        result = OperationResult()
        for _ in range(ATTEMPTS_MAX):
            decision, results = await self._rounds.write(lambda image: self._decide(image, request))
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
    ) -> Decided[PipelineDecision]:
        decision = pipelines.alter(image, request, office=self._office, now_ms=self._clock_ms())
        return Decided(decision, [] if decision.operation is None else [decision.operation])


def _as_written(decision: PipelineDecision, version: int) -> Pipeline | None:
    after, operation = decision
    if after is None or operation is None:
        return None
    begins = any(
        isinstance(one, PipelineSet) and one.run_epoch == PipelineSet.BEGIN
        for one in operation.records
    )
    run_epoch = version if begins else after.run_epoch
    return msgspec.structs.replace(after, version=MetadataOffset(version), run_epoch=run_epoch)


def _failed(code: int, message: str) -> admin_pb2.AlterPipelineResponse:
    return admin_pb2.AlterPipelineResponse(error_code=code, error_message=message)
