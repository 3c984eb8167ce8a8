"""Checks of the offset and the leader epoch in a request. They return Kafka error codes."""

from quorate.common.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2

NOT_CHECKED = -1


def check_leader_epoch(requested: int, known: LeaderEpoch) -> int:
    """Return FENCED_LEADER_EPOCH if the sender is behind, UNKNOWN_LEADER_EPOCH if this broker is.

    NONE means that both know the same epoch, or that the request does not check it (rule 4).
    """
    if requested in (NOT_CHECKED, known):
        return errors_pb2.NONE
    if requested < known:
        return errors_pb2.FENCED_LEADER_EPOCH
    return errors_pb2.UNKNOWN_LEADER_EPOCH


def check_fetch_offset(fetch_offset: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return OFFSET_OUT_OF_RANGE unless the offset lies between log start and log end.

    Between high watermark and log end a consumer gets an empty set, not an error (C16).
    """
    if log_start_offset <= fetch_offset <= log_end_offset:
        return errors_pb2.NONE
    return errors_pb2.OFFSET_OUT_OF_RANGE
