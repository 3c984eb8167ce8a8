"""The error for a client that has used up its quota."""

from quorate.broker.common.errors import KafkaError
from quorate_proto.v1 import errors_pb2


class MutationQuotaExceeded(KafkaError):
    """The request is refused. The client may try again after ``throttle_time_ms`` (KIP-599)."""

    def __init__(self, throttle_time_ms: int, message: str) -> None:
        super().__init__(errors_pb2.THROTTLING_QUOTA_EXCEEDED, message)
        self.throttle_time_ms = throttle_time_ms
