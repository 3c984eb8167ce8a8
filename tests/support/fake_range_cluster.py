"""Brokers inside the test's process that serve ranges: real gRPC and sockets, a log in a list.

A test says what is in the log, and through `FakeRangeCluster.before_frame` what goes wrong: the
hook may change the cluster, return the header of an error, raise `EndStream` to end the stream as
if all were well, or raise anything else to break it.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc

from quorate.broker.replication.serving.offset_runs import first_run
from quorate.client.bootstrap import BrokerEndpoints
from quorate.common.topic_partition import TopicPartition
from quorate.spark.cluster_client import READ_UNCOMMITTED
from quorate.spark.offset_ranges import EARLIEST, LATEST
from quorate_proto.v1.errors_pb2 import (
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from quorate_proto.v1.groups_pb2 import (
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    CommitOutcome,
)
from quorate_proto.v1.metadata_pb2 import Endpoint
from quorate_proto.v1.replication_pb2 import (
    AbortedTransaction,
    BrokerEndpoint,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetAnswer,
    OffsetQuery,
    PartitionDescription,
    RangeHeader,
    RangeReadRequest,
    TopicDescription,
)
from tests.support.describe_cluster import DescribeClusterServer, describe_cluster_response
from tests.support.record_batches import Record, encode_batch

SERVICE = "quorate.v1.RangeRead"
GROUPS_SERVICE = "quorate.v1.GroupOffsets"


class EndStream(Exception):
    """Raised by a hook: the stream ends here, without an error."""


@dataclass
class FakeLog:
    """One partition: batches by (base offset, next offset, bytes), and who leads it."""

    batches: list[tuple[int, int, bytes]]
    leader: int
    log_start: int
    high_watermark: int
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    """(timestamp ms, offset) of every record."""
    open_since: int | None = None
    """The offset at which the first transaction begins that has not ended."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    isr: tuple[int, ...] = ()
    """The leader and its followers in sync, where a test wants followers."""
    leader_epoch: int = 0

    def serves(self, broker_id: int, request: RangeReadRequest) -> bool:
        """Whether it may be read there."""
        if broker_id == self.leader:
            return True
        is_asked = request.from_follower and request.current_leader_epoch == self.leader_epoch
        return is_asked and broker_id in self.isr

    def end(self, isolation_level: int) -> int:
        """Return the offset behind the last one that a reader gets."""
        if isolation_level == READ_UNCOMMITTED or self.open_since is None:
            return self.high_watermark
        return self.open_since


@dataclass(frozen=True)
class FrameAbout:
    """A frame that is about to be sent: the ``index``-th of a stream."""

    broker_id: int
    request: RangeReadRequest
    index: int


class FakeRangeCluster:
    """Some brokers with one DescribeCluster listener; a context manager."""

    def __init__(self, brokers: int = 2, batches_per_frame: int = 1) -> None:
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.reads: list[tuple[int, int]] = []
        """(broker id, start offset) of every Read so far."""
        self.open_reads = 0
        """Streams that have neither ended nor been given up by who asked for them."""
        self.before_frame: Callable[[FrameAbout], RangeHeader | None] = lambda about: None
        self.on_describe: Callable[[], None] = lambda: None
        """A function that is called whenever a broker is asked for topics and leaders."""
        self.uninformed: set[int] = set()
        """Brokers that have just started: they know of no topic and no broker yet."""
        self.unreachable: set[int] = set()
        """Brokers that tell nobody about topics and leaders, as if their links were cut."""
        self.removed: set[TopicPartition] = set()
        """Partitions that are there no longer, though their log still is."""
        self.coordinator = 0
        """The broker that coordinates every group."""
        self.commits: list[CommitOffsetsRequest] = []
        """The requests to the coordinator, in order. It accepts every one of them."""
        self.before_commit: Callable[[CommitOffsetsRequest], CommitOffsetsResponse | None] = (
            lambda request: None
        )
        """May answer in the coordinator's place."""
        self.knows_groups = True
        """Whether the brokers know groups, which older ones did not."""
        self.sends_runs = False
        """Whether readers of offsets alone get runs, which older brokers did not send."""
        self._batches_per_frame = batches_per_frame
        self._counting = threading.Lock()
        self._servers: dict[int, grpc.Server] = {}
        self._ports: dict[int, int] = {}
        for broker_id in range(brokers):
            self._start(broker_id)
        self._listener = DescribeClusterServer(self._describe_cluster)
        self.bootstrap = self._listener.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker_id in list(self._servers):
            self.kill(broker_id)
        self._listener.__exit__(exception_type, exception, traceback)

    def add(
        self,
        topic: str,
        partition: int,
        batches: Sequence[Sequence[Record]],
        *,
        leader: int = 0,
        codec: str = "none",
    ) -> FakeLog:
        """A partition with these batches of records, in order of offsets."""
        encoded = [(b[0].offset, b[-1].offset + 1, encode_batch(b, codec=codec)) for b in batches]
        log = FakeLog(
            encoded,
            leader,
            log_start=encoded[0][0] if encoded else 0,
            high_watermark=encoded[-1][1] if encoded else 0,
            timestamps=[(r.timestamp_ms, r.offset) for b in batches for r in b],
        )
        self.logs[TopicPartition(topic, partition)] = log
        self.topic_ids.setdefault(topic, topic.encode().ljust(16, b"-")[:16])
        return log

    def kill(self, broker_id: int) -> None:
        """Stop a broker at once; its streams break."""
        self._servers.pop(broker_id).stop(None).wait()

    def _start(self, broker_id: int) -> None:
        server = grpc.server(ThreadPoolExecutor(8))
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "DescribeTopics": grpc.unary_unary_rpc_method_handler(
                lambda request, context: (
                    context.abort(grpc.StatusCode.UNAVAILABLE, "a link is cut")
                    if broker_id in self.unreachable
                    else self._describe_topics(broker_id, request)
                ),
                DescribeTopicsRequest.FromString,
                DescribeTopicsResponse.SerializeToString,
            ),
            "ListOffsets": grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._list_offsets(broker_id, request),
                ListOffsetsRequest.FromString,
                ListOffsetsResponse.SerializeToString,
            ),
            "Read": grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._read(broker_id, request),
                RangeReadRequest.FromString,
            ),
        }
        commits = {
            "CommitOffsets": grpc.unary_unary_rpc_method_handler(
                lambda request, context: (
                    self._commit(broker_id, request)
                    if self.knows_groups
                    else context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
                ),
                CommitOffsetsRequest.FromString,
                CommitOffsetsResponse.SerializeToString,
            )
        }
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                grpc.method_handlers_generic_handler(GROUPS_SERVICE, commits),
            )
        )
        self._ports[broker_id] = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self._servers[broker_id] = server

    def _commit(self, broker_id: int, request: CommitOffsetsRequest) -> CommitOffsetsResponse:
        if broker_id != self.coordinator:
            elsewhere = Endpoint(host="127.0.0.1", port=self._ports[self.coordinator])
            return CommitOffsetsResponse(error_code=NOT_COORDINATOR, coordinator=elsewhere)
        if (answer := self.before_commit(request)) is not None:
            return answer
        self.commits.append(request)
        return CommitOffsetsResponse(outcomes=[CommitOutcome() for _ in request.offsets])

    def committed(self) -> list[dict[str, int]]:
        """The offsets of each commit, by the names of partitions; without mere checks."""
        return [
            {f"{one.topic}-{one.partition}": one.offset for one in request.offsets}
            for request in self.commits
            if not request.validate_only
        ]

    def _describe_cluster(self) -> bytes:
        endpoints = [
            BrokerEndpoints(broker_id, "127.0.0.1:1", f"127.0.0.1:{self._ports[broker_id]}")
            for broker_id in self._servers
        ]
        return describe_cluster_response(endpoints)

    def _describe_topics(
        self, asked: int, request: DescribeTopicsRequest
    ) -> DescribeTopicsResponse:
        self.on_describe()
        if asked in self.uninformed:
            unknown = [
                TopicDescription(topic=name, error_code=UNKNOWN_TOPIC_OR_PARTITION)
                for name in request.topics
            ]
            return DescribeTopicsResponse(topics=unknown)
        names = sorted(self.topic_ids) if request.all else request.topics
        return DescribeTopicsResponse(
            topics=[self._describe_topic(name) for name in names],
            brokers=[
                BrokerEndpoint(
                    broker_id=broker_id,
                    grpc=Endpoint(host="127.0.0.1", port=self._ports[broker_id]),
                )
                for broker_id in self._servers
            ],
        )

    def _describe_topic(self, name: str) -> TopicDescription:
        if name not in self.topic_ids:
            return TopicDescription(topic=name, error_code=UNKNOWN_TOPIC_OR_PARTITION)
        return TopicDescription(
            topic=name,
            topic_id=self.topic_ids[name],
            partitions=[
                PartitionDescription(
                    partition=tp.partition,
                    leader=log.leader,
                    leader_epoch=log.leader_epoch,
                    isr=log.isr,
                )
                for tp, log in sorted(self.logs.items())
                if tp.topic == name and tp not in self.removed
            ],
        )

    def _list_offsets(self, broker_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        level = request.isolation_level
        return ListOffsetsResponse(
            answers=[self._offset(broker_id, query, level) for query in request.queries]
        )

    def _offset(self, broker_id: int, query: OffsetQuery, isolation_level: int) -> OffsetAnswer:
        log = self.logs[TopicPartition(query.topic, query.partition)]
        if log.leader != broker_id:
            return OffsetAnswer(error_code=NOT_LEADER_OR_FOLLOWER, offset=-1)
        if query.timestamp_ms == EARLIEST:
            return OffsetAnswer(offset=log.log_start)
        if query.timestamp_ms == LATEST:
            return OffsetAnswer(offset=log.end(isolation_level))
        found = [offset for time_ms, offset in log.timestamps if time_ms >= query.timestamp_ms]
        return OffsetAnswer(offset=min(found, default=-1))

    def _read(self, broker_id: int, request: RangeReadRequest) -> Iterator[bytes]:
        self.reads.append((broker_id, request.start_offset))
        with self._counting:
            self.open_reads += 1
        try:
            yield from self._frames(broker_id, request)
        finally:
            with self._counting:
                self.open_reads -= 1

    def _frames(self, broker_id: int, request: RangeReadRequest) -> Iterator[bytes]:
        log = self.logs[TopicPartition(request.topic, request.partition)]
        wanted = [
            encoded
            for base_offset, next_offset, encoded in log.batches
            if next_offset > request.start_offset and base_offset < request.end_offset
        ]
        step = self._batches_per_frame
        for index, at in enumerate(range(0, max(len(wanted), 1), step)):
            try:
                header = self.before_frame(FrameAbout(broker_id, request, index))
            except EndStream:
                return
            header = header or self._header(broker_id, request, log)
            records = b"" if header.error_code else b"".join(wanted[at : at + step])
            if self.sends_runs and request.offsets_only and (run := first_run([records])):
                header.run_start, header.run_end = run
                records = b""
            if request.isolation_level:
                header.aborted.extend(log.aborted)
            yield _frame(header, records)
            if header.error_code:
                return

    def _header(self, broker_id: int, request: RangeReadRequest, log: FakeLog) -> RangeHeader:
        error_code = 0
        end = log.end(request.isolation_level)
        if not log.serves(broker_id, request):
            error_code = NOT_LEADER_OR_FOLLOWER
        elif request.topic_id not in (b"", self.topic_ids[request.topic]):
            error_code = UNKNOWN_TOPIC_OR_PARTITION
        elif request.start_offset < log.log_start or request.end_offset > end:
            error_code = OFFSET_OUT_OF_RANGE
        return RangeHeader(
            error_code=error_code,
            log_start_offset=log.log_start,
            high_watermark=end,
            leader=log.leader,
        )


def _frame(header: RangeHeader, records: bytes) -> bytes:
    """The frame of a header and records, which ``split_frame`` takes apart."""
    encoded = header.SerializeToString()
    return len(encoded).to_bytes(4, "big") + encoded + records
