"""What a client is told that has used up its quota."""

from broker.errors import KafkaError
from quorate_proto.v1 import errors_pb2


class ThrottlingQuotaExceededError(KafkaError):
    """Refused, to be tried again after ``throttle_time_ms`` (KIP-599)."""

    def __init__(self, throttle_time_ms: int, message: str) -> None:
        super().__init__(errors_pb2.THROTTLING_QUOTA_EXCEEDED, message)
        self.throttle_time_ms = throttle_time_ms
