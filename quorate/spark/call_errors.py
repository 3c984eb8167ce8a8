"""What a call to a broker may fail with: what another try may heal, and what it cannot.

grpc is imported by this module: see `quorate.spark.cluster`.
"""

import grpc

from quorate.spark.errors import CallRefused
from quorate_proto.v1.errors_pb2 import (
    BROKER_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    REPLICA_NOT_AVAILABLE,
    REQUEST_TIMED_OUT,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)

RETRIABLE = frozenset(
    {
        NOT_LEADER_OR_FOLLOWER,
        LEADER_NOT_AVAILABLE,
        BROKER_NOT_AVAILABLE,
        REPLICA_NOT_AVAILABLE,
        OFFSET_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION,
        UNKNOWN_LEADER_EPOCH,
        FENCED_LEADER_EPOCH,
        KAFKA_STORAGE_ERROR,
        REQUEST_TIMED_OUT,
    }
)
"""Kafka errors that another try at the current leader may heal."""

COORDINATOR_MOVED = frozenset(
    {NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE}
)
"""Kafka errors of a group's coordinator that another try, perhaps at another one, may heal."""

PERMANENT_STATUSES = frozenset(
    {
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return next((name for name, value in ErrorCode.items() if value == code), f"error {code}")


def reason_of(error: Exception) -> str:
    """What a failed call says of itself, on one line."""
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)


def is_not_served(error: Exception) -> bool:
    """Whether the broker is of a release that did not know such calls."""
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED


def raise_if_permanent(error: Exception) -> None:
    """Pass on a failure that no retry can heal.

    Raises:
        CallRefused: who we are, what we may, or what we asked for.
    """
    if isinstance(error, grpc.Call) and error.code() in PERMANENT_STATUSES:
        raise CallRefused(reason_of(error)) from error
