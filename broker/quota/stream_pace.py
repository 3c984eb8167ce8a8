"""Makes a gRPC stream wait while its user is over a quota of bytes.

Streams have no throttle time to tell. A reader gets its next frame later, and a writer's next frame
is taken later; gRPC's flow control does the rest. The usage is the same as that of the user's Kafka
connections, so nobody has a quota twice.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.quota.shared_usage import SharedUsage
from quorate_proto.v1 import errors_pb2

LEAST_FRAME_BYTES: Final = 64 << 10
FRAMES_PER_SECOND: Final = 4
"""The number of frames into which a second of the quota is divided. Streams of the same user take
turns by the frame, and a client gives up if no frame comes for a long time.
"""


class StreamPace:
    """The pace of one stream. ``usage`` returns that of its user, or None if there is no quota."""

    def __init__(
        self,
        usage: Callable[[], SharedUsage | None] = lambda: None,
        now_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._usage = usage
        self._now_ms = now_ms

    async def wait(self) -> None:
        """Return once the user is not muted, and it is the turn of this stream.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED, because too many wait for the end of the mute.
        """
        while (usage := self._usage()) is not None:
            wait_ms = usage.wait_ms(self._now_ms())
            if not wait_ms:
                return
            if not usage.take_place():
                raise KafkaError(
                    errors_pb2.THROTTLING_QUOTA_EXCEEDED,
                    f"the quota is exceeded, and many wait already: try again in {wait_ms} ms",
                )
            try:
                await asyncio.sleep(wait_ms / 1_000)
            finally:
                usage.leave_place()

    def count(self, size: int) -> None:
        """Count a frame."""
        usage = self._usage()
        if usage is not None:
            usage.use(size, self._now_ms())

    def frame_bytes(self, wanted: int) -> int:
        """Return how large the next frame may be."""
        usage = self._usage()
        if usage is None:
            return wanted
        return min(wanted, max(LEAST_FRAME_BYTES, int(usage.limit) // FRAMES_PER_SECOND))
