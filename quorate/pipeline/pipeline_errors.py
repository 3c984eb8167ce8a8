"""The errors that stop a pipeline. Each message says what to do."""

from quorate.client.errors import QuorateError


class PipelineError(QuorateError):
    """Any refusal or failure of a pipeline."""


class RunFenced(PipelineError):
    """Another run has taken over, or an operator has reset the pipeline. This run has to end."""


class SinkError(PipelineError):
    """The sink cannot be read or written, or holds something that it should not hold."""


class TransformError(PipelineError):
    """The SQL cannot be run, or its result cannot be stored."""
