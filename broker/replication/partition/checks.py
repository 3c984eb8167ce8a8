"""Whether an offset or a leader epoch in a request is acceptable: Kafka error codes, 0 for yes."""

from metadata_log.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2

NOT_CHECKED = -1


def check_leader_epoch(requested: int, known: LeaderEpoch) -> int:
    """FENCED_LEADER_EPOCH: the asker is behind. UNKNOWN_LEADER_EPOCH: this broker is (rule 4)."""
    if requested in (NOT_CHECKED, known):
        return errors_pb2.NONE
    if requested < known:
        return errors_pb2.FENCED_LEADER_EPOCH
    return errors_pb2.UNKNOWN_LEADER_EPOCH


def check_fetch_offset(fetch_offset: int, log_start_offset: int, log_end_offset: int) -> int:
    """Between high watermark and log end a consumer gets an empty set, not an error (C16)."""
    if log_start_offset <= fetch_offset <= log_end_offset:
        return errors_pb2.NONE
    return errors_pb2.OFFSET_OUT_OF_RANGE
