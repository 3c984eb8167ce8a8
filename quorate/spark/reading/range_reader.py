"""Reads one range of one partition from its leader, to the end, exactly once.

The decoder's ``next_offset`` is the only position. If a stream breaks, a leader moves or a broker
hangs, the next stream starts at this offset, at the leader of that moment, and records before it
are trimmed. So no record is handed out twice, and none is skipped.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import grpc
import pyarrow as pa

from quorate.spark.call_errors import RETRIABLE, error_name, raise_if_permanent, reason_of
from quorate.spark.cluster_client import ClusterClient
from quorate.spark.decoding.aborted_batches import AbortedBatches
from quorate.spark.decoding.arrow_decoder import ArrowDecoder
from quorate.spark.errors import CallRefused, ClusterUnavailable, RangeUnavailable, UnknownTopic
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.reading.frame_stream import SILENCE_MS, FrameStream, split_frame
from quorate.spark.retries import RetryPolicy
from quorate_proto.v1.errors_pb2 import NONE, OFFSET_OUT_OF_RANGE
from quorate_proto.v1.replication_pb2 import RangeHeader, RangeReadRequest

FRAME_BYTES = 1 << 20
_logger = logging.getLogger(__name__)


class _TryAgain(Exception):
    """The stream ended early, and another try may succeed."""


@dataclass(frozen=True, slots=True)
class RangePolicy:
    """The timeouts and retries of a reader."""

    fail_on_data_loss: bool
    frame_timeout_ms: int
    retry_policy: RetryPolicy
    silence_ms: int = SILENCE_MS


class RangeReader:
    """Reads one range as Arrow batches, in the order of offsets."""

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
        self._retries = policy.retry_policy.new_retries()
        self._end = offset_range.end
        self._decoder = ArrowDecoder(
            offset_range.topic_partition, offset_range.start, offset_range.end, schema
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all records of the range.

        Raises:
            RangeUnavailable: the log no longer holds all of it (and failOnDataLoss is on).
            UnknownTopic: the topic was deleted since the range was planned, and perhaps re-created
                (and failOnDataLoss is on).
            ClusterUnavailable: no leader answered within the retries.
            CallRefused: the leader refused for good, because the user may not read the topic.
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
            # A broker that has just started knows no topic. Only when the retries are spent is it
            # certain that the topic is gone.
            if self._cluster.exists(self._range.topic_partition):
                raise
            self._lose_topic(f"{self._range.topic_partition} is no longer there ({reason})")
        else:
            self._cluster.refresh([self._range.topic_partition])

    def _is_another_topic(self) -> bool:
        """Return True if the topic was re-created: its offsets hold other records now."""
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
        """Read one stream until its end. The caller checks whether the range is complete."""
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
            on_silence=partial(self._refuse_old_leader, leader),
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
        """Stop reading from a silent leader if another broker leads now.

        A leader that hangs keeps its connections, so only the other brokers can tell.

        Raises:
            _TryAgain: another broker leads now.
        """
        partition = self._range.topic_partition
        self._cluster.refresh([partition])
        leader = self._cluster.leader_of(partition)
        if leader not in (None, silent):
            raise _TryAgain(f"{silent} is silent, and {leader} leads now")

    def _finish(self, last: RangeHeader) -> None:
        """Finish the range after a stream without any batch, if its last offsets are empty.

        Compaction leaves offsets without records, so this is no error. But only a leader whose high
        watermark is past the range can know it. A stream with batches says nothing about the
        offsets behind them, however it ended.
        """
        if last.high_watermark < self._end:
            raise _TryAgain(f"the stream ended at offset {self._decoder.next_offset}")
        self._decoder.skip_to(self._end)

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
            self._decoder.skip_to(min(first, self._end))
            return
        # The high watermark of a leader that was just elected may lag, so try again first.
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
