"""The raw frames of ``RangeRead.Read``: a thread receives them ahead of the decoder."""

import queue
import struct
import threading
from collections.abc import Callable, Iterator

from quorate.spark.cluster_client import FrameCall
from quorate.spark.errors import ClusterUnavailable
from quorate_proto.v1.replication_pb2 import RangeHeader

FRAMES_AHEAD = 2
"""The number of frames that are received while one is being decoded."""
SILENCE_MS = 2_000
"""The time without a frame after which the leader is looked up again. A busy leader may take
longer."""
CLOSE_POLL_SECONDS = 0.1

_HEADER_LENGTH = struct.Struct(">I")


def split_frame(frame: bytes) -> tuple[RangeHeader, memoryview]:
    """Return the header and the records of a raw frame. The records are not copied.

    Raises:
        ClusterUnavailable: the peer sent something that is no frame.
    """
    view = memoryview(frame)
    if len(view) < _HEADER_LENGTH.size:
        raise ClusterUnavailable(f"a frame of {len(view)} bytes has no header")
    (size,) = _HEADER_LENGTH.unpack_from(view)
    end = _HEADER_LENGTH.size + size
    if end > len(view):
        raise ClusterUnavailable(f"a frame of {len(view)} bytes says its header has {size}")
    return RangeHeader.FromString(bytes(view[_HEADER_LENGTH.size : end])), view[end:]


class FrameStream:
    """The frames of a call, received by a thread of their own, so that a silent leader is noticed.

    Close it: that cancels the call and ends the thread. Spark's LIMIT stops in the middle.
    """

    def __init__(
        self,
        call: FrameCall,
        timeout_ms: int,
        on_silence: Callable[[], None] = lambda: None,
        silence_ms: int = SILENCE_MS,
    ) -> None:
        """
        Args:
            call: the running call.
            timeout_ms: how long no frame may arrive before the read fails.
            on_silence: is called repeatedly while no frame arrives; it may raise to stop early.
            silence_ms: the time between two calls of ``on_silence``.
        """
        self._call = call
        self._timeout_ms = timeout_ms
        self._on_silence = on_silence
        self._silence_ms = silence_ms
        self._received: queue.Queue[bytes | Exception | None] = queue.Queue(FRAMES_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="range-frames", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the frames in order, until the stream ends.

        Raises:
            TimeoutError: no frame arrived within the timeout.
            grpc.RpcError: the call failed.
        """
        while True:
            item = self._next()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def close(self) -> None:
        """Cancel the call and wait for the thread to end."""
        self._closed.set()
        self._call.cancel()
        self._thread.join()

    def _next(self) -> bytes | Exception | None:
        left_ms = self._timeout_ms
        while True:
            wait_ms = min(left_ms, self._silence_ms)
            try:
                return self._received.get(timeout=wait_ms / 1000)
            except queue.Empty:
                left_ms -= wait_ms
            if left_ms <= 0:
                raise TimeoutError(f"no frame within {self._timeout_ms} ms")
            self._on_silence()

    def _receive(self) -> None:
        end: Exception | None = None
        try:
            for frame in self._call:
                self._put(frame)
        except Exception as error:  # noqa: BLE001 - handed to the reader, who raises it
            end = error
        self._put(end)

    def _put(self, item: bytes | Exception | None) -> None:
        while not self._closed.is_set():
            try:
                self._received.put(item, timeout=CLOSE_POLL_SECONDS)
            except queue.Full:
                continue
            return
