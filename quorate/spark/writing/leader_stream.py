"""One stream of ``RangeWrite.Write`` to one leader: it sends frames, and reports answers as events.

gRPC takes the frames from a queue, and a thread of the stream's own hands on the answers. So one
slow leader never holds up the writer while another leader waits for it.
"""

import queue
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import grpc

from quorate.spark.cluster_client import FrameCall
from quorate.spark.writing.batch_builder import ProducerBatch
from quorate_proto.v1.replication_pb2 import (
    RangeWriteRequest,
    RangeWriteResponse,
    WrittenPartition,
)

WRITE_METHOD: Final = "/quorate.v1.RangeWrite/Write"

_HEADER_LENGTH: Final = struct.Struct(">I")


class FrameAnswered(NamedTuple):
    """The event that a leader has answered a frame."""

    stream: "LeaderStream"
    response: RangeWriteResponse


class StreamEnded(NamedTuple):
    """The event that a stream is over."""

    stream: "LeaderStream"
    error: Exception | None
    """The failure, or None if the leader ended the stream."""


StreamEvent = FrameAnswered | StreamEnded


@dataclass(slots=True)
class _Sent:
    """A frame that the leader has not answered yet."""

    batches: Sequence[ProducerBatch]
    sent_at_ms: int


class LeaderStream:
    """A stream of frames to one leader. Close it: that cancels the call and ends its thread."""

    def __init__(
        self,
        leader: str,
        channel: grpc.Channel,
        timeout_ms: int,
        events: "queue.SimpleQueue[StreamEvent]",
    ) -> None:
        """
        Args:
            leader: the address, for messages.
            channel: the connection to it.
            timeout_ms: how long the leader may wait for its replicas.
            events: takes the events, from a thread of the stream.
        """
        self.leader = leader
        self._timeout_ms = timeout_ms
        self._events = events
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unanswered: dict[int, _Sent] = {}
        self._next_id = 0
        write: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(WRITE_METHOD)
        self._call: FrameCall = write(iter(self._requests.get, None))
        self._thread = threading.Thread(target=self._receive, name="range-answers", daemon=True)
        self._thread.start()

    def send(self, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        """Queue a frame with these batches."""
        self._unanswered[self._next_id] = _Sent(batches, now_ms)
        self._requests.put(encode_frame(self._next_id, self._timeout_ms, batches))
        self._next_id += 1

    def take_answered(self, request_id: int) -> Sequence[ProducerBatch]:
        """Remove a frame that was answered; return its batches, or none if it is unknown."""
        sent = self._unanswered.pop(request_id, None)
        return () if sent is None else sent.batches

    def take_unanswered(self) -> list[ProducerBatch]:
        """Remove all frames without an answer, and return their batches."""
        batches = [batch for sent in self._unanswered.values() for batch in sent.batches]
        self._unanswered.clear()
        return batches

    def unanswered(self) -> Iterator[ProducerBatch]:
        """Yield the batches of all frames without an answer."""
        for sent in self._unanswered.values():
            yield from sent.batches

    @property
    def waits_since_ms(self) -> int | None:
        """The time at which the oldest unanswered frame was sent; None if there is none."""
        return next((sent.sent_at_ms for sent in self._unanswered.values()), None)

    def close(self) -> None:
        """Cancel the call and wait for the thread to end."""
        self._requests.put(None)
        self._call.cancel()
        self._thread.join()

    def _receive(self) -> None:
        end: Exception | None = None
        try:
            for answer in self._call:
                self._events.put(FrameAnswered(self, RangeWriteResponse.FromString(answer)))
        except Exception as error:  # noqa: BLE001 - handed to the writer, who raises it
            end = error
        self._events.put(StreamEnded(self, end))


def encode_frame(request_id: int, timeout_ms: int, batches: Sequence[ProducerBatch]) -> bytes:
    """Return one frame with the batches, which are copied once, into it."""
    header = RangeWriteRequest(
        request_id=request_id,
        timeout_ms=timeout_ms,
        partitions=[
            WrittenPartition(
                topic=batch.target.partition.topic,
                topic_id=batch.target.topic_id,
                partition=batch.target.partition.partition,
                records_size=batch.size,
            )
            for batch in batches
        ],
    ).SerializeToString()
    pieces = [piece for batch in batches for piece in batch.records]
    return b"".join((_HEADER_LENGTH.pack(len(header)), header, *pieces))
