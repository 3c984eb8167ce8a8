"""The errors of calls to brokers: those that another try may heal, and those that it cannot.

This module imports grpc: see `quorate.spark.cluster_client`.
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
"""Kafka errors of a group coordinator that another try, perhaps at another broker, may heal."""

PERMANENT_STATUSES = frozenset(
    {
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)


def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    return next((name for name, value in ErrorCode.items() if value == code), f"error {code}")


def reason_of(error: Exception) -> str:
    """Return the reason of a failed call, on one line."""
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)


def is_not_served(error: Exception) -> bool:
    """Return True if the broker's release does not know this call."""
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED


def raise_if_permanent(error: Exception) -> None:
    """Raise a failure that no retry can heal.

    Raises:
        CallRefused: the broker refuses our identity, our rights, or the request itself.
    """
    if isinstance(error, grpc.Call) and error.code() in PERMANENT_STATUSES:
        raise CallRefused(reason_of(error)) from error
