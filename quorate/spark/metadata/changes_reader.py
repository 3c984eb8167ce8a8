"""Reads a range of the metadata log from whichever broker answers, and goes on at the next.

A broker tells frames of rows, and with each how far everything was told. A frame may end in the
middle of a transaction: its rows so far are counted, and passed over when it is told again. Every
broker tells the same rows in the same order, so nothing is read twice or skipped.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import grpc

from quorate.spark.call_errors import raise_if_permanent, reason_of
from quorate.spark.cluster import ClusterClient, RangeCall
from quorate.spark.metadata.columns import batch_of
from quorate.spark.metadata.metadata_options import MetadataOptions
from quorate.spark.metadata.planning import KnownOffsets, MetadataRange, refuse_loss
from quorate.spark.reading.frames import FrameStream
from quorate_proto.v1.admin_pb2 import (
    MetadataChanges,
    MetadataChangesRequest,
    MetadataOffsetsRequest,
)
from quorate_proto.v1.admin_pb2_grpc import MetadataViewStub

if TYPE_CHECKING:
    import pyarrow as pa

CALL_TIMEOUT_SECONDS = 10.0
_READ_METHOD = "/quorate.v1.MetadataView/ReadMetadataChanges"


def ask_offsets(
    cluster: ClusterClient, options: MetadataOptions, *, latest_only: bool = False
) -> KnownOffsets:
    """Which offsets can be read; with ``latest_only`` the earliest is 0.

    Raises:
        CallRefused: a record type that there is none of, or no right to ask.
        ClusterUnavailable: nobody answered within the retries.
    """
    request = MetadataOffsetsRequest(record_types=options.record_types, latest_only=latest_only)

    def ask(channel: grpc.Channel) -> KnownOffsets:
        answer = MetadataViewStub(channel).MetadataOffsets(request, timeout=CALL_TIMEOUT_SECONDS)
        return KnownOffsets(answer.earliest_offset, answer.latest_offset, answer.cluster_id)

    return cluster.ask_any("asking for the offsets of the metadata log", ask)


class ChangesReader:
    """Reads one range, once."""

    def __init__(
        self,
        cluster: ClusterClient,
        wanted: MetadataRange,
        options: MetadataOptions,
        schema: "pa.Schema",
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._schema = schema
        self._end = wanted.end
        self._next_offset = wanted.start
        self._told_of_next = 0
        """Rows of ``_next_offset`` that were handed out already."""
        self._to_skip = 0
        self._retries = options.connection.new_retries()

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The changes in order.

        Raises:
            RangeUnavailable: some of them are no longer kept.
            ClusterUnavailable: nobody told them within the retries.
        """
        while self._next_offset < self._end:
            try:
                yield from self._from_one_broker()
            except (grpc.RpcError, TimeoutError) as error:
                raise_if_permanent(error)
                left = MetadataRange(self._next_offset, self._end)
                self._retries.pause(f"reading {left}", reason_of(error))
                self._cluster.leave_broker()

    def _from_one_broker(self) -> "Iterator[pa.RecordBatch]":
        request = MetadataChangesRequest(
            start_offset=self._next_offset,
            end_offset=self._end,
            record_types=self._options.record_types,
        )

        def begin(channel: grpc.Channel) -> RangeCall:
            read: Callable[[MetadataChangesRequest], RangeCall] = channel.unary_stream(
                _READ_METHOD, request_serializer=MetadataChangesRequest.SerializeToString
            )
            return read(request)

        call = self._cluster.ask_any("reading the metadata log", begin)
        stream = FrameStream(call, self._options.frame_timeout_ms)
        self._to_skip = self._told_of_next
        try:
            for encoded in stream:
                batch = self._take(MetadataChanges.FromString(encoded))
                if batch is not None:
                    yield batch
        finally:
            stream.close()

    def _take(self, frame: MetadataChanges) -> "pa.RecordBatch | None":
        """What is new of a frame; None: nothing."""
        if frame.first_offset > self._next_offset:
            self._lose(frame.first_offset)
        rows = range(self._skipped_of(frame), len(frame.offsets))
        of_next = sum(frame.offsets[row] == frame.next_offset for row in rows)
        if frame.next_offset > self._next_offset:
            self._next_offset, self._told_of_next = frame.next_offset, 0
            self._retries.progress()
        self._told_of_next += of_next
        if not rows:
            return None
        self._retries.progress()
        return batch_of(frame, rows, self._schema)

    def _skipped_of(self, frame: MetadataChanges) -> int:
        """How many rows of the frame were handed out already: the first ones of a stream."""
        skipped = min(self._to_skip, len(frame.offsets))
        self._to_skip -= skipped
        return skipped

    def _lose(self, first_offset: int) -> None:
        left = MetadataRange(self._next_offset, self._end)
        refuse_loss(left, first_offset, self._end, self._options.fail_on_data_loss)
        self._next_offset, self._told_of_next, self._to_skip = min(first_offset, self._end), 0, 0
