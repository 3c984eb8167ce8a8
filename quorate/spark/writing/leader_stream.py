"""One stream of ``RangeWrite.Write`` to one leader: frames out, answers in as events.

gRPC takes frames from a queue and a thread of this stream's own hands on the answers, so whoever
writes is never held up by one leader while another waits for it.
"""

import queue
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import grpc

from quorate.spark.writing.batches import Batch
from quorate_proto.v1.replication_pb2 import (
    RangeWriteRequest,
    RangeWriteResponse,
    WrittenPartition,
)

WRITE_METHOD: Final = "/quorate.v1.RangeWrite/Write"

_HEADER_LENGTH: Final = struct.Struct(">I")


class WriteCall(Protocol):
    """A running ``RangeWrite.Write``: its raw answers."""

    def __iter__(self) -> Iterator[bytes]: ...
    def cancel(self) -> bool: ...


class Answered(NamedTuple):
    """A leader answered a frame."""

    stream: "LeaderStream"
    response: RangeWriteResponse


class Ended(NamedTuple):
    """A stream is over; ``error`` None: the leader ended it."""

    stream: "LeaderStream"
    error: Exception | None


Event = Answered | Ended


@dataclass(slots=True)
class _Sent:
    """A frame that is not answered yet."""

    batches: Sequence[Batch]
    sent_at_ms: int


class LeaderStream:
    """Close it: that cancels the call and ends its thread."""

    def __init__(
        self, leader: str, channel: grpc.Channel, timeout_ms: int, tell: Callable[[Event], None]
    ) -> None:
        """
        Args:
            leader: the address, for messages.
            channel: the connection to it.
            timeout_ms: how long the leader may wait for its replicas.
            tell: takes the events, called by another thread.
        """
        self.leader = leader
        self._timeout_ms = timeout_ms
        self._tell = tell
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unanswered: dict[int, _Sent] = {}
        self._next_id = 0
        write: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(WRITE_METHOD)
        self._call: WriteCall = write(iter(self._requests.get, None))
        self._thread = threading.Thread(target=self._receive, name="range-answers", daemon=True)
        self._thread.start()

    def send(self, batches: Sequence[Batch], now_ms: int) -> None:
        """Queue a frame."""
        self._unanswered[self._next_id] = _Sent(batches, now_ms)
        self._requests.put(encode_frame(self._next_id, self._timeout_ms, batches))
        self._next_id += 1

    def take_answered(self, request_id: int) -> Sequence[Batch]:
        """The batches of a frame that was answered; none, if it was answered before."""
        sent = self._unanswered.pop(request_id, None)
        return () if sent is None else sent.batches

    def take_unanswered(self) -> list[Batch]:
        """Every batch whose answer is still missing."""
        batches = [batch for sent in self._unanswered.values() for batch in sent.batches]
        self._unanswered.clear()
        return batches

    def unanswered(self) -> Iterator[Batch]:
        """As `take_unanswered`, but they stay."""
        for sent in self._unanswered.values():
            yield from sent.batches

    @property
    def waits_since_ms(self) -> int | None:
        """When the oldest frame without an answer was sent; None: all are answered."""
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
                self._tell(Answered(self, RangeWriteResponse.FromString(answer)))
        except Exception as error:  # noqa: BLE001 - handed to the writer, who raises it
            end = error
        self._tell(Ended(self, end))


def encode_frame(request_id: int, timeout_ms: int, batches: Sequence[Batch]) -> bytes:
    """One frame: the batches are copied once, into it."""
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
