"""The errors of the quorate client."""

from typing import cast


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, such as ``NOT_CONTROLLER``; its number if it is
    unknown."""
    from quorate_proto.v1 import errors_pb2

    try:
        return errors_pb2.ErrorCode.Name(cast("errors_pb2.ErrorCode.ValueType", code))
    except ValueError:
        return f"error {code}"


class QuorateError(Exception):
    """Base class of all errors that the quorate client raises; the message says what to do."""


class ClusterUnreachable(QuorateError):
    """No broker answered, or no controller was found, before the deadline."""


class RequestFailed(QuorateError):
    """The cluster refused a request. ``code`` is Kafka's error code, ``error`` its name."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.error = error_name(code)
        self.message = message
        super().__init__(f"{self.error}: {message}" if message else self.error)


class ThrottlingQuotaExceededError(RequestFailed):
    """The request is refused for now; try again after ``throttle_time_ms`` (KIP-599)."""

    def __init__(self, throttle_time_ms: int, code: int, message: str) -> None:
        super().__init__(code, message)
        self.throttle_time_ms = throttle_time_ms
