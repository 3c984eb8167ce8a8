"""Reads one range of one partition to the end, exactly once.

The decoder's ``next_offset`` is the only position. If a stream breaks, a leader moves or a broker
hangs, the next stream starts at this offset, at the leader of that moment, and records before it
are trimmed. So no record is handed out twice, and none is skipped. While this host alone does not
reach the leader, a follower in sync serves the same records.
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
from quorate.spark.known_topics import Replica
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.reading.frame_stream import SILENCE_MS, FrameStream, split_frame
from quorate.spark.retries import RetryPolicy
from quorate_proto.v1.errors_pb2 import NONE, OFFSET_OUT_OF_RANGE
from quorate_proto.v1.replication_pb2 import RangeHeader, RangeReadRequest

FRAME_BYTES = 1 << 20
RUN_FRAME_BYTES = 4 << 20
"""The size of the batches that a broker looks at for a frame if only offsets are wanted. The frame
is as large only if the batches have gaps or are of transactions."""
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
        self._refused: set[str] = set()
        """Followers that could not serve the next offset when they were asked."""
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
            replica = self._cluster.replica_to_read(partition, self._refused)
            try:
                if replica is None:
                    raise _TryAgain("the partition has no leader")
                yield from self._read_from(replica)
            except (_TryAgain, TimeoutError, grpc.RpcError) as error:
                raise_if_permanent(error)
                self._leave(replica, error)
                self._try_again(replica, reason_of(error))

    def _leave(self, replica: Replica | None, error: Exception) -> None:
        """Read from another replica the next time if this one cannot serve the range."""
        if replica is None:
            return
        if not replica.leads:
            self._refused.add(replica.address)
            return
        self._refused.clear()
        if isinstance(error, grpc.RpcError):
            self._cluster.answers(replica.address)

    def _try_again(self, replica: Replica | None, reason: str) -> None:
        attempt = f"reading {self._range} at offset {self._decoder.next_offset} from {replica}"
        _logger.info("%s: %s; asking again", attempt, reason)
        try:
            self._retries.pause(attempt, reason)
        except ClusterUnavailable:
            # A broker that has just started knows no topic. Only when the retries are spent is it
            # certain that the topic is gone.
            if self._cluster.known.exists(self._range.topic_partition):
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

    def _read_from(self, replica: Replica) -> Iterator[pa.RecordBatch]:
        """Read one stream until its end. The caller checks whether the range is complete."""
        start = self._decoder.next_offset
        request = RangeReadRequest(
            topic=self._range.topic_partition.topic,
            topic_id=self._range.topic_id,
            partition=self._range.topic_partition.partition,
            start_offset=start,
            end_offset=self._end,
            max_frame_bytes=RUN_FRAME_BYTES if self._decoder.needs_no_records else FRAME_BYTES,
            offsets_only=self._decoder.needs_no_records,
            isolation_level=self._cluster.isolation_level,
            from_follower=not replica.leads,
            current_leader_epoch=replica.leader_epoch,
        )
        header = RangeHeader()
        call = self._cluster.open_range(replica.address, request)
        frames = FrameStream(
            call,
            self._policy.frame_timeout_ms,
            on_silence=partial(self._leave_silent, replica),
            silence_ms=self._policy.silence_ms,
        )
        with closing(frames):
            for frame in frames:
                header, records = split_frame(frame)
                if header.error_code != NONE:
                    self._handle_error(header)
                    return
                before = self._decoder.next_offset
                if header.run_end:
                    yield from self._decoder.decode_run(header.run_start, header.run_end)
                else:
                    yield from self._decoder.decode(records, AbortedBatches(header.aborted))
                if self._decoder.next_offset > before:
                    self._retries.progress()
                    self._refused.clear()
        if self._decoder.next_offset == start:
            self._finish(header)

    def _leave_silent(self, silent: Replica) -> None:
        """Stop reading from a silent replica if another broker leads now, or if it is unreachable.

        A leader that hangs keeps its connections, and so does one behind a link that was cut. So
        the other brokers are asked who leads. The cluster may be content with a leader that only
        this host does not reach: then a follower can serve what is committed.

        Raises:
            _TryAgain: there is another replica to read from.
        """
        partition = self._range.topic_partition
        self._cluster.ask_last(silent.address)
        self._cluster.refresh([partition])
        leader = self._cluster.leader_of(partition)
        if silent.leads and leader not in (None, silent.address):
            raise _TryAgain(f"{silent} is silent, and {leader} leads now")
        if not self._cluster.answers(silent.address):
            raise _TryAgain(f"{silent} does not answer this host")

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
