"""Sends batches to their leaders, and again where that failed, until every one is acknowledged.

All state belongs to the one thread that writes. The streams put events into a queue for it. It
waits only while enough bytes are unacknowledged, and at the end.
"""

import queue
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from quorate.common.topic_partition import TopicPartition
from quorate.spark.call_errors import raise_if_permanent, reason_of
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.errors import UnknownTopic, WriteRefused
from quorate.spark.writing.batch_builder import ProducerBatch
from quorate.spark.writing.leader_stream import FrameAnswered, LeaderStream, StreamEvent
from quorate.spark.writing.unacknowledged_batches import BatchOutcome, UnacknowledgedBatches
from quorate_proto.v1.replication_pb2 import RangeWriteResponse

OPEN_BYTES_MAX: Final = 16 << 20
"""The limit for unacknowledged bytes. Beyond it the writer waits."""

SILENCE_MS: Final = 2_000
"""The time without an answer after which the sender asks the cluster for a new leader."""

ANSWER_GRACE_MS: Final = 5_000
"""The time by which a leader may answer later than the timeout of its replicas."""


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """The timeouts of a writer."""

    delivery_timeout_ms: int
    """The time for which a partition may go on failing before the task fails."""
    request_timeout_ms: int
    """The time for which a leader may wait for its replicas."""


class Sender:
    """Sends the batches of one writer; close it, or use it as a context manager."""

    def __init__(self, cluster: ClusterClient, settings: SenderSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._unacknowledged = UnacknowledgedBatches(settings.delivery_timeout_ms)
        self._streams: dict[str, LeaderStream] = {}
        self._events: queue.SimpleQueue[StreamEvent] = queue.SimpleQueue()
        self._topic_ids: dict[str, bytes] = {}
        self._looked_at_ms = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def records_written(self) -> int:
        """The number of records that are acknowledged."""
        return self._unacknowledged.records_written

    def send(self, batches: Iterable[ProducerBatch]) -> None:
        """Send batches. Wait while `OPEN_BYTES_MAX` or more are not acknowledged.

        Raises:
            WriteRefused, RecordTooLarge: a leader refuses a batch; names topic and partition.
            CallRefused: a leader does not serve this writer.
            UnknownTopic: a topic was deleted and re-created.
            ClusterUnavailable: a batch was not acknowledged within the delivery timeout.
        """
        for batch in batches:
            self._topic_ids[batch.target.partition.topic] = batch.target.topic_id
            self._unacknowledged.add(batch)
            self._take_events()
            self._send_ready_batches()
            while self._unacknowledged.open_bytes >= OPEN_BYTES_MAX:
                self._wait()

    def flush(self) -> None:
        """Return when every batch is acknowledged. The errors are those of `send`."""
        while self._unacknowledged.open_bytes:
            self._wait()

    def close(self) -> None:
        """End all streams. Unacknowledged batches may be written or not."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _wait(self) -> None:
        """Wait until an event arrives, or until it is time to retry or to check the streams."""
        try:
            self._handle(self._events.get(timeout=self._patience_ms() / 1000))
        except queue.Empty:
            self._check_silent_streams()
        self._take_events()
        self._send_ready_batches()

    def _take_events(self) -> None:
        while not self._events.empty():
            self._handle(self._events.get())

    def _patience_ms(self) -> int:
        retry_at_ms = self._unacknowledged.retry_at_ms()
        if retry_at_ms is None:
            return SILENCE_MS
        return min(SILENCE_MS, max(0, retry_at_ms - _now_ms()))

    def _send_ready_batches(self) -> None:
        now_ms = _now_ms()
        retry_at_ms = self._unacknowledged.retry_at_ms()
        if retry_at_ms is not None and retry_at_ms <= now_ms:
            self._refresh(self._unacknowledged.failing())
            now_ms = _now_ms()
        for leader, batches in self._unacknowledged.frames(self._cluster.leader_of, now_ms):
            self._stream_to(leader).send(batches, now_ms)

    def _stream_to(self, leader: str) -> LeaderStream:
        stream = self._streams.get(leader)
        if stream is None:
            channel = self._cluster.channel(leader)
            timeout_ms = self._settings.request_timeout_ms
            stream = LeaderStream(leader, channel, timeout_ms, self._events)
            self._streams[leader] = stream
        return stream

    def _handle(self, event: StreamEvent) -> None:
        if isinstance(event, FrameAnswered):
            self._looked_at_ms = _now_ms()
            self._answered(event.stream, event.response)
        elif self._streams.get(event.stream.leader) is event.stream:
            self._ended(event.stream, event.error)

    def _answered(self, stream: LeaderStream, response: RangeWriteResponse) -> None:
        batches = stream.take_answered(response.request_id)
        if len(batches) != len(response.outcomes):
            raise WriteRefused(
                f"{stream.leader} answered {len(response.outcomes)} of {len(batches)} batches"
            )
        now_ms = _now_ms()
        for batch, answer in zip(batches, response.outcomes, strict=True):
            outcome = BatchOutcome(answer.error_code, answer.error_message)
            self._unacknowledged.answered(batch, outcome, stream.leader, now_ms)

    def _ended(self, stream: LeaderStream, error: Exception | None) -> None:
        if error is not None:
            raise_if_permanent(error)
        reason = f"{stream.leader}: {reason_of(error) if error else 'the stream ended'}"
        self._give_up(stream, reason)

    def _give_up(self, stream: LeaderStream, reason: str) -> None:
        """Close a stream. Its unanswered batches are sent again on a new one."""
        del self._streams[stream.leader]
        stream.close()
        self._unacknowledged.lost(stream.take_unanswered(), reason, _now_ms())

    def _check_silent_streams(self) -> None:
        """Give up streams whose leader is over its time or leads no more."""
        now_ms = _now_ms()
        limit_ms = self._settings.request_timeout_ms + ANSWER_GRACE_MS
        silent: list[LeaderStream] = []
        for stream in list(self._streams.values()):
            since_ms = stream.waits_since_ms
            if since_ms is None or now_ms - since_ms < SILENCE_MS:
                continue
            if now_ms - since_ms >= limit_ms:
                self._give_up(stream, f"{stream.leader}: no answer for {now_ms - since_ms} ms")
            else:
                silent.append(stream)
        if silent and now_ms - self._looked_at_ms >= SILENCE_MS:
            self._looked_at_ms = now_ms
            self._leave_former_leaders(silent)

    def _leave_former_leaders(self, streams: Iterable[LeaderStream]) -> None:
        waiting = {s: {batch.target.partition for batch in s.unanswered()} for s in streams}
        self._refresh(sorted(set().union(*waiting.values())))
        for stream, partitions in waiting.items():
            leaders = {self._cluster.leader_of(tp) for tp in partitions}
            if stream.leader not in leaders:
                self._give_up(stream, f"{stream.leader}: leads no more")

    def _refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask who leads.

        Raises:
            UnknownTopic: a topic has another id now, so it was deleted and re-created.
        """
        partitions = list(partitions)
        self._cluster.refresh(partitions)
        for topic in {partition.topic for partition in partitions}:
            written, current = self._topic_ids[topic], self._cluster.topic_id(topic)
            if written and current is not None and current != written:
                raise UnknownTopic(
                    f"topic {topic} was deleted and created anew while it was written to: its id "
                    f"was {written.hex()} and is {current.hex()}"
                )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
