"""Reads a range of the metadata log from any broker, and goes on at another one if that fails.

A broker sends frames of rows. Each frame says up to which offset all rows were sent. A frame may
end in the middle of a transaction: the rows of it that were handed out are counted, and skipped
when they are sent again. Every broker sends the same rows in the same order, so no row is handed
out twice and none is skipped.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import grpc

from quorate.spark.call_errors import raise_if_permanent, reason_of
from quorate.spark.cluster_client import ClusterClient, FrameCall
from quorate.spark.metadata.metadata_columns import batch_of
from quorate.spark.metadata.metadata_query import (
    KnownOffsets,
    MetadataOptions,
    MetadataRange,
    refuse_loss,
)
from quorate.spark.reading.frame_stream import FrameStream
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


def read_metadata_offsets(
    cluster: ClusterClient, options: MetadataOptions, *, latest_only: bool = False
) -> KnownOffsets:
    """Return the offsets that can be read. With ``latest_only``, the earliest one is 0.

    Raises:
        CallRefused: a record type is unknown, or the user may not read the metadata log.
        ClusterUnavailable: no broker answered within the retries.
    """
    request = MetadataOffsetsRequest(record_types=options.record_types, latest_only=latest_only)

    def ask(channel: grpc.Channel) -> KnownOffsets:
        answer = MetadataViewStub(channel).MetadataOffsets(request, timeout=CALL_TIMEOUT_SECONDS)
        return KnownOffsets(answer.earliest_offset, answer.latest_offset, answer.cluster_id)

    return cluster.ask_any("asking for the offsets of the metadata log", ask)


class MetadataRangeReader:
    """Reads one range of the metadata log, once."""

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
        self._handed_out_of_next = 0
        """The number of rows of ``_next_offset`` that were handed out already."""
        self._to_skip = 0
        self._retries = options.connection.retry_policy.new_retries()

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the changes in order.

        Raises:
            RangeUnavailable: some of them are no longer kept.
            ClusterUnavailable: no broker sent them within the retries.
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

        def begin(channel: grpc.Channel) -> FrameCall:
            read: Callable[[MetadataChangesRequest], FrameCall] = channel.unary_stream(
                _READ_METHOD, request_serializer=MetadataChangesRequest.SerializeToString
            )
            return read(request)

        call = self._cluster.ask_any("reading the metadata log", begin)
        stream = FrameStream(call, self._options.frame_timeout_ms)
        self._to_skip = self._handed_out_of_next
        try:
            for encoded in stream:
                batch = self._take(MetadataChanges.FromString(encoded))
                if batch is not None:
                    yield batch
        finally:
            stream.close()

    def _take(self, frame: MetadataChanges) -> "pa.RecordBatch | None":
        """Return the new rows of a frame, or None if there are none."""
        if frame.first_offset > self._next_offset:
            self._lose(frame.first_offset)
        rows = range(self._skipped_of(frame), len(frame.offsets))
        of_next = sum(frame.offsets[row] == frame.next_offset for row in rows)
        if frame.next_offset > self._next_offset:
            self._next_offset, self._handed_out_of_next = frame.next_offset, 0
            self._retries.progress()
        self._handed_out_of_next += of_next
        if not rows:
            return None
        self._retries.progress()
        return batch_of(frame, rows, self._schema)

    def _skipped_of(self, frame: MetadataChanges) -> int:
        """Return how many rows at the start of the frame were handed out already."""
        skipped = min(self._to_skip, len(frame.offsets))
        self._to_skip -= skipped
        return skipped

    def _lose(self, first_offset: int) -> None:
        left = MetadataRange(self._next_offset, self._end)
        refuse_loss(left, first_offset, self._end, self._options.fail_on_data_loss)
        self._next_offset, self._handed_out_of_next, self._to_skip = (
            min(first_offset, self._end),
            0,
            0,
        )
