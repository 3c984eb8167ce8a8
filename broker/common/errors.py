"""Errors with a Kafka error code, and the one table from the quorum's refusals to these codes."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from quorate.metadata_log.records import ResultCode
from quorate_proto.v1 import errors_pb2
from quorate_proto.v1.errors_pb2 import ErrorCode

ERROR_NAMES: Final[Mapping[int, str]] = {code: name for name, code in ErrorCode.items()}
"""Kafka's names of its error codes."""


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, such as ``NOT_CONTROLLER``."""
    return ErrorCode.Name(cast("errors_pb2.ErrorCode.ValueType", code))


class KafkaError(Exception):
    """A request, or one item of it, fails with a Kafka error code.

    ``message`` names the object, the value and what to do about it. It reaches the client if the
    API has a field for it, and otherwise it goes to the log.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{error_name(code)}: {message}")
        self.code = code
        self.message = message


def without_traceback(error: KafkaError) -> KafkaError:
    """Return an error that was caught and is kept as an answer, without its traceback.

    A traceback holds the frames that it went through, and they hold the request, and often the
    error itself. The memory of the request would be free only when the garbage collector finds the
    circle.
    """
    error.__traceback__ = None
    return error


class RecordError(NamedTuple):
    """One record because of which the records of a partition are refused (KIP-467).

    ``place`` is its index among the records of that partition in the request.
    """

    place: int
    message: str


class InvalidRecords(KafkaError):
    """Records are refused because some of them are invalid. A client can send the others again
    without them.
    """

    def __init__(self, code: int, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


CODE_OF_RESULT: Final[dict[ResultCode, int]] = {
    ResultCode.OK: errors_pb2.NONE,
    ResultCode.CONDITION_FAILED: errors_pb2.INVALID_REQUEST,
    ResultCode.SESSION_GONE: errors_pb2.STALE_BROKER_EPOCH,
    ResultCode.CONTROLLER_FENCED: errors_pb2.NOT_CONTROLLER,
    ResultCode.VERSION_CONFLICT: errors_pb2.INVALID_UPDATE_VERSION,
    ResultCode.UNKNOWN_TOPIC: errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    ResultCode.TOPIC_EXISTS: errors_pb2.TOPIC_ALREADY_EXISTS,
    ResultCode.FENCED_LEADER_EPOCH: errors_pb2.FENCED_LEADER_EPOCH,
    ResultCode.NEWER_LEADER_EPOCH: errors_pb2.NOT_CONTROLLER,
    ResultCode.INELIGIBLE_REPLICA: errors_pb2.INELIGIBLE_REPLICA,
    ResultCode.INVALID: errors_pb2.INVALID_REQUEST,
    ResultCode.OUTCOME_UNKNOWN: errors_pb2.REQUEST_TIMED_OUT,
    ResultCode.ABORTED: errors_pb2.INVALID_REQUEST,
    ResultCode.STALE_BROKER_EPOCH: errors_pb2.STALE_BROKER_EPOCH,
    ResultCode.DUPLICATE_BROKER: errors_pb2.DUPLICATE_BROKER_REGISTRATION,
}
"""The error code that a client receives when ``apply`` refuses an operation that was made on its
behalf.
"""
