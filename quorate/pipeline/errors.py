"""What keeps a pipeline from going on; the message says what to do."""

from quorate.client.errors import QuorateError


class PipelineError(QuorateError):
    """Any refusal or failure of a pipeline."""


class OutOfCharge(PipelineError):
    """Another run has taken over, or an operator has set the pipeline back: this run is over."""


class SinkError(PipelineError):
    """The sink cannot be read or written, or holds what it should not."""


class TransformError(PipelineError):
    """The SQL cannot be run, or its result cannot be stored."""
