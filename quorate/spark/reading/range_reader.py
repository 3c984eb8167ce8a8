"""Reading one range of one partition from whoever leads it, to the end, exactly once.

The decoder's ``next_offset`` is the only position there is. A stream that breaks, a leader that
moves, a broker that hangs: the next stream starts there, at the leader of that moment, and records
before it are trimmed. So what has been handed out is never handed out twice and never skipped.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import grpc
import pyarrow as pa

from quorate.spark.call_errors import RETRIABLE, error_name, raise_if_permanent, reason_of
from quorate.spark.cluster import ClusterClient
from quorate.spark.decoding.aborted_batches import AbortedBatches
from quorate.spark.decoding.arrow_columns import ArrowDecoder
from quorate.spark.errors import CallRefused, ClusterUnavailable, RangeUnavailable, UnknownTopic
from quorate.spark.ranges import OffsetRange
from quorate.spark.reading.frames import SILENCE_MS, FrameStream, split_frame
from quorate.spark.retries import Retries
from quorate_proto.v1.errors_pb2 import NONE, OFFSET_OUT_OF_RANGE
from quorate_proto.v1.replication_pb2 import RangeHeader, RangeReadRequest

FRAME_BYTES = 1 << 20
_logger = logging.getLogger(__name__)


class _TryAgain(Exception):
    """The stream ended early, for a reason that another try may heal."""


@dataclass(frozen=True, slots=True)
class RangePolicy:
    """How patient a reader is."""

    fail_on_data_loss: bool
    frame_timeout_ms: int
    new_retries: Callable[[], Retries]
    silence_ms: int = SILENCE_MS


class RangeReader:
    """Arrow batches of one range, in order of offsets."""

    def __init__(
        self,
        cluster: ClusterClient,
        offset_range: OffsetRange,
        schema: pa.Schema,
        policy: RangePolicy,
    ) -> None:
        self._cluster = cluster
        self._range = offset_range
        self._policy = policy
        self._retries = policy.new_retries()
        self._end = offset_range.end
        self._decoder = ArrowDecoder(
            offset_range.topic_partition, offset_range.start, offset_range.end, schema
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All records of the range.

        Raises:
            RangeUnavailable: the log no longer holds all of it (and failOnDataLoss is on).
            UnknownTopic: the topic was deleted since the range was planned, and perhaps created
                anew (and failOnDataLoss is on).
            ClusterUnavailable: no leader answered within the retries.
            CallRefused: the leader refused for good, as we may not read the topic.
            CorruptBatch: names topic, partition and offset.
        """
        partition = self._range.topic_partition
        while self._decoder.next_offset < self._end:
            if self._is_another_topic():
                return
            leader = self._cluster.leader_of(partition)
            try:
                if leader is None:
                    raise _TryAgain("the partition has no leader")
                yield from self._read_from(leader)
            except (_TryAgain, TimeoutError, grpc.RpcError) as error:
                raise_if_permanent(error)
                self._try_again(leader, reason_of(error))

    def _try_again(self, leader: str | None, reason: str) -> None:
        attempt = f"reading {self._range} at offset {self._decoder.next_offset} from {leader}"
        _logger.info("%s: %s; asking again", attempt, reason)
        try:
            self._retries.pause(attempt, reason)
        except ClusterUnavailable:
            # A broker that has just started knows no topic: only patience tells that one is gone.
            if self._cluster.exists(self._range.topic_partition):
                raise
            self._lose_topic(f"{self._range.topic_partition} is no longer there ({reason})")
        else:
            self._cluster.refresh([self._range.topic_partition])

    def _is_another_topic(self) -> bool:
        """A topic of the same name but another id holds other records at the same offsets."""
        topic, planned = self._range.topic_partition.topic, self._range.topic_id
        current = self._cluster.topic_id(topic)
        if not planned or current in (None, planned):
            return False
        self._lose_topic(
            f"topic {topic} was deleted and created anew since the query was planned: its id "
            f"was {planned.hex()} and is {current and current.hex()}"
        )
        return True

    def _lose_topic(self, refusal: str) -> None:
        position = self._decoder.next_offset
        refusal = f"{refusal}; {self._range} was read up to offset {position}"
        if self._policy.fail_on_data_loss:
            raise UnknownTopic(f"{refusal}. failOnDataLoss=false goes on without the rest")
        _logger.warning("%s, and ends there (failOnDataLoss=false)", refusal)
        self._end = position

    def _read_from(self, leader: str) -> Iterator[pa.RecordBatch]:
        """One stream, until its end; whether the range is complete is for the caller to see."""
        start = self._decoder.next_offset
        request = RangeReadRequest(
            topic=self._range.topic_partition.topic,
            topic_id=self._range.topic_id,
            partition=self._range.topic_partition.partition,
            start_offset=start,
            end_offset=self._end,
            max_frame_bytes=FRAME_BYTES,
            isolation_level=self._cluster.isolation_level,
        )
        header = RangeHeader()
        call = self._cluster.open_range(leader, request)
        frames = FrameStream(
            call,
            self._policy.frame_timeout_ms,
            on_silence=lambda: self._refuse_old_leader(leader),
            silence_ms=self._policy.silence_ms,
        )
        with closing(frames):
            for frame in frames:
                header, records = split_frame(frame)
                if header.error_code != NONE:
                    self._handle_error(header)
                    return
                before = self._decoder.next_offset
                yield from self._decoder.decode(records, AbortedBatches(header.aborted))
                if self._decoder.next_offset > before:
                    self._retries.progress()
        if self._decoder.next_offset == start:
            self._finish(header)

    def _refuse_old_leader(self, silent: str) -> None:
        """A leader that hangs keeps its connections: only the others can say that it was deposed.

        Raises:
            _TryAgain: somebody else leads now.
        """
        partition = self._range.topic_partition
        self._cluster.refresh([partition])
        leader = self._cluster.leader_of(partition)
        if leader not in (None, silent):
            raise _TryAgain(f"{silent} is silent, and {leader} leads now")

    def _finish(self, last: RangeHeader) -> None:
        """A stream without a single batch: are the last offsets of the range empty?

        Compaction leaves offsets without records, so that is no error; but only a leader whose high
        watermark is past the range can say so. A stream that held batches says nothing about what
        is behind them, however it ended.
        """
        if last.high_watermark < self._end:
            raise _TryAgain(f"the stream ended at offset {self._decoder.next_offset}")
        self._decoder.next_offset = self._end

    def _handle_error(self, header: RangeHeader) -> None:
        reason = f"{error_name(header.error_code)}: {header.error_message}"
        if header.error_code in RETRIABLE:
            raise _TryAgain(reason)
        if header.error_code != OFFSET_OUT_OF_RANGE:
            raise CallRefused(f"reading {self._range} was refused: {reason}")
        self._handle_out_of_range(header)

    def _handle_out_of_range(self, header: RangeHeader) -> None:
        position = self._decoder.next_offset
        first, behind_last = header.log_start_offset, header.high_watermark
        refusal = (
            f"offsets [{position}, {self._end}) of {self._range.topic_partition} are not "
            f"available: the log holds [{first}, {behind_last})"
        )
        if first > position:
            self._refuse_loss(refusal)
            self._decoder.next_offset = min(first, self._end)
            return
        # The high watermark of a leader just elected may lag: only patience tells.
        try:
            self._retries.pause(f"reading {self._range}", refusal)
        except ClusterUnavailable:
            self._refuse_loss(refusal)
            self._end = max(position, behind_last)
        else:
            self._cluster.refresh([self._range.topic_partition])

    def _refuse_loss(self, refusal: str) -> None:
        if self._policy.fail_on_data_loss:
            raise RangeUnavailable(
                f"{refusal}. They were when the query was planned: retention or a lost log has "
                "removed them; failOnDataLoss=false reads what is left"
            )
        _logger.warning("%s; reading what is left (failOnDataLoss=false)", refusal)
