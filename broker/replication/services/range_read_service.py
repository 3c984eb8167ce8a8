"""The gRPC service ``RangeRead`` for Spark and other readers of ranges (D2).

Topics and leaders come from the metadata cache (UpdateMetadata). Offsets come from the leader
alone. Records come from a follower as well, if the reader says that it does not reach the leader.
Both are only of what is committed.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import ColdRead
from quorate.broker.metadata.metadata_cache import CachedBroker, MetadataCache
from quorate.broker.metadata.packed_topics import offline_replicas
from quorate.broker.quota.client_memory import ResponseLease, ResponseMemory
from quorate.broker.quota.stream_pace import StreamPace
from quorate.broker.replication.api import Isolation, isolation_of
from quorate.broker.replication.frames import pack_frame
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.partition.checks import check_leader_epoch
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.broker.replication.serving.fetch import RecordReader, end_of_reads
from quorate.broker.replication.serving.offset_runs import first_run
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation
from quorate.common.types import NO_BROKER, BrokerId, TopicPartition
from quorate.metadata_log.codec import encode_endpoint
from quorate_proto.v1 import errors_pb2, replication_pb2

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

SERVICE = "quorate.v1.RangeRead"
FRAME_BYTES_DEFAULT = 1 << 20
FRAME_BYTES_MAX = 16 << 20


class RangeReadService:
    """Answers readers of ranges. Records go out as raw frames, joined once."""

    def __init__(
        self,
        table: PartitionTable,
        metadata: MetadataCache,
        rights: Callable[[], Rights],
        max_batch_bytes: Callable[[str], int],
        memory: ResponseMemory,
        pace: Callable[[], StreamPace] = StreamPace,
    ) -> None:
        """``rights`` returns those of the caller that is being served, and ``pace`` the pace of its
        quota.

        ``max_batch_bytes`` looks up a topic. ``memory`` is what the frames of all readers share.
        """
        self._pace = pace
        self._table = table
        self._max_batch_bytes = max_batch_bytes
        self._metadata = metadata
        self._rights = rights
        self._memory = memory
        self._consuming = RecordReader(table)

    async def describe_topics(
        self, request: replication_pb2.DescribeTopicsRequest, context: Context
    ) -> replication_pb2.DescribeTopicsResponse:
        """Return topics, leaders, and where to reach them.

        A broker that was told nothing yet answers UNAVAILABLE: an empty answer would say that there
        are no topics.
        """
        if not self._metadata.brokers:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "this broker was not told of the cluster yet",
            )
        rights = self._rights()
        known = self._metadata.topics
        names = sorted(known) if request.all else request.topics
        seen = rights.topics(AclOperation.DESCRIBE, names, log_denied=not request.all)
        if request.all:
            names = [name for name in names if name in seen]
        return replication_pb2.DescribeTopicsResponse(
            topics=[self._describe(name) if name in seen else _hidden(name) for name in names],
            brokers=[_endpoint(broker_id, b) for broker_id, b in self._metadata.brokers.items()],
            controller_id=self._metadata.controller_id,
        )

    def _describe(self, name: str) -> replication_pb2.TopicDescription:
        topic = self._metadata.topics.get(name)
        if topic is None:
            return replication_pb2.TopicDescription(
                topic=name, error_code=errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
            )
        described = replication_pb2.TopicDescription(
            topic=name, topic_id=topic.topic_id, max_message_bytes=self._max_batch_bytes(name)
        )
        for number, partition in enumerate(topic.partitions):
            described.partitions.add(
                partition=number,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                offline=offline_replicas(partition, self._metadata.brokers),
            )
        return described

    async def list_offsets(
        self, request: replication_pb2.ListOffsetsRequest, context: Context
    ) -> replication_pb2.ListOffsetsResponse:
        """Return offsets of partitions that are led here."""
        response = replication_pb2.ListOffsetsResponse()
        seen = self._rights().topics(AclOperation.DESCRIBE, (one.topic for one in request.queries))
        isolation = isolation_of(request.isolation_level)
        for query in request.queries:
            if query.topic not in seen:
                response.answers.add(error_code=errors_pb2.TOPIC_AUTHORIZATION_FAILED)
                continue
            tp = TopicPartition(query.topic, query.partition)
            found = self._consuming.list_offset(tp, query.timestamp_ms, isolation=isolation)
            response.answers.add(
                error_code=found.error_code,
                offset=found.offset,
                timestamp_ms=found.timestamp_ms,
                leader_epoch=found.leader_epoch,
            )
        return response

    async def read(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """Yield frames of the batches that hold [start, end); an error comes as the last frame.

        Rights, leadership and bounds are checked for every frame: each may change while a range is
        read. A frame holds memory until the next one is asked for.
        """
        lease = ResponseLease(self._memory)
        try:
            async for frame in self._frames(request, lease):
                yield frame
        finally:
            lease.keep(0)

    async def _frames(self, request: bytes, lease: ResponseLease) -> AsyncIterator[bytes]:
        wanted = replication_pb2.RangeReadRequest.FromString(request)
        rights = self._rights()
        pace = self._pace()
        frame_bytes = min(wanted.max_frame_bytes or FRAME_BYTES_DEFAULT, FRAME_BYTES_MAX)
        position = wanted.start_offset
        wait = False
        while position < wanted.end_offset:
            if not rights.may_topic(AclOperation.READ, wanted.topic):
                yield _not_allowed(wanted.topic)
                return
            try:
                await pace.wait()
                room_bytes = await self._memory.reserve(lease, pace.frame_bytes(frame_bytes))
                frame, position = self._frame(wanted, position, room_bytes, wait=wait)
            except ColdRead as cold:
                await cold.load()
                wait = True
                continue
            except KafkaError as error:
                yield self._refusal(wanted, error)
                return
            wait = False
            lease.keep(len(frame))
            pace.count(len(frame))
            yield frame
            lease.keep(0)

    def _frame(
        self,
        wanted: replication_pb2.RangeReadRequest,
        position: int,
        frame_bytes: int,
        *,
        wait: bool,
    ) -> tuple[bytes, int]:
        hosted = self._readable(wanted)
        isolation = isolation_of(wanted.isolation_level)
        readable_end = end_of_reads(hosted, isolation)
        start = hosted.log.log_start_offset
        if not hosted.leads:
            _check_follower(hosted, position, wanted.end_offset, readable_end)
        if readable_end < wanted.end_offset <= hosted.log.log_end_offset and (
            not hosted.replica.knows_what_is_committed
        ):
            raise KafkaError(
                errors_pb2.OFFSET_NOT_AVAILABLE,
                f"the leader of {hosted.tp} is new and does not know yet that everything below "
                f"{wanted.end_offset} is committed; try again",
            )
        if position < start or wanted.end_offset > readable_end:
            raise KafkaError(
                errors_pb2.OFFSET_OUT_OF_RANGE,
                f"offsets [{wanted.start_offset}, {wanted.end_offset}) of {hosted.tp} were asked "
                f"for; available are [{start}, {readable_end})",
            )
        try:
            read = hosted.log.read(
                position, frame_bytes, readable_end, wanted.end_offset, wait=wait
            )
        except KafkaError as error:
            if hosted.leads:
                raise
            # Whatever is wrong with a follower's log, the leader may have these records.
            raise KafkaError(errors_pb2.OFFSET_NOT_AVAILABLE, error.message) from error
        if read.next_offset <= position:
            raise KafkaError(
                errors_pb2.UNKNOWN_SERVER_ERROR,
                f"{hosted.tp} has no batch at offset {position}, below {readable_end}, where what "
                "can be read ends: look into the broker's log",
            )
        header = replication_pb2.RangeHeader(log_start_offset=start, high_watermark=readable_end)
        if wanted.offsets_only and (run := first_run(read.chunks)) is not None:
            header.run_start, header.run_end = run
            return pack_frame(header.SerializeToString()), run.end
        hosted.traffic.sent(read.size)
        if isolation is Isolation.READ_COMMITTED:
            for aborted in hosted.log.transactions.aborted(position, read.next_offset):
                header.aborted.add(**aborted._asdict())
        return pack_frame(header.SerializeToString(), read.chunks), read.next_offset

    def _readable(self, wanted: replication_pb2.RangeReadRequest) -> HostedPartition:
        tp = TopicPartition(wanted.topic, wanted.partition)
        hosted = self._table.named(tp)
        topic = self._metadata.topics.get(wanted.topic)
        is_other = wanted.topic_id and (
            (hosted is not None and hosted.tip.topic_id != wanted.topic_id)
            or (topic is not None and topic.topic_id != wanted.topic_id)
        )
        if is_other:
            raise KafkaError(
                errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
                f"{tp} is not of topic id {wanted.topic_id.hex()}: the topic was re-created",
            )
        if hosted is not None and (hosted.leads or _follows_as(hosted, wanted)):
            return hosted
        raise KafkaError(*self._table.not_leader(tp, hosted))

    def _refusal(self, wanted: replication_pb2.RangeReadRequest, error: KafkaError) -> bytes:
        tp = TopicPartition(wanted.topic, wanted.partition)
        hosted = self._table.named(tp)
        header = replication_pb2.RangeHeader(
            error_code=error.code, error_message=error.message, leader=self._known_leader(tp)
        )
        if hosted is not None:
            header.log_start_offset = hosted.log.log_start_offset
            isolation = isolation_of(wanted.isolation_level)
            header.high_watermark = end_of_reads(hosted, isolation)
        return pack_frame(header.SerializeToString())

    def _known_leader(self, tp: TopicPartition) -> BrokerId:
        topic = self._metadata.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return NO_BROKER
        return topic.partitions[tp.partition].leader


def _hidden(name: str) -> replication_pb2.TopicDescription:
    """Describe a topic that the caller may not see, whether it exists or not."""
    return replication_pb2.TopicDescription(
        topic=name, error_code=errors_pb2.TOPIC_AUTHORIZATION_FAILED
    )


def _follows_as(hosted: HostedPartition, wanted: replication_pb2.RangeReadRequest) -> bool:
    """Say whether a reader that does not reach the leader may read here.

    Raises:
        KafkaError: the leader that the reader means is not the one that is followed here.
    """
    if not wanted.from_follower or hosted.replica.role is not ReplicaRole.FOLLOWER:
        return False
    ours = hosted.replica.leader_epoch
    code = check_leader_epoch(wanted.current_leader_epoch, ours)
    if code != errors_pb2.NONE:
        raise KafkaError(
            code,
            f"this broker follows the leader of epoch {ours} in {hosted.tp}, and the reader knows "
            f"that of epoch {wanted.current_leader_epoch}",
        )
    return True


def _check_follower(hosted: HostedPartition, position: int, end: int, readable_end: int) -> None:
    """Refuse what only the leader can judge: whether these offsets are there, and readable.

    Raises:
        KafkaError: OFFSET_NOT_AVAILABLE, never OFFSET_OUT_OF_RANGE, which would mean a loss.
    """
    start = hosted.log.log_start_offset
    if start <= position and end <= readable_end and not hosted.is_damaged:
        return
    raise KafkaError(
        errors_pb2.OFFSET_NOT_AVAILABLE,
        f"this follower of {hosted.tp} knows [{start}, {readable_end}) to be committed, and "
        f"[{position}, {end}) is asked for: ask the leader",
    )


def _not_allowed(topic: str) -> bytes:
    header = replication_pb2.RangeHeader(
        error_code=errors_pb2.TOPIC_AUTHORIZATION_FAILED,
        error_message=f"not allowed to READ TOPIC {topic!r}",
        leader=NO_BROKER,
    )
    return pack_frame(header.SerializeToString())


def _endpoint(broker_id: BrokerId, broker: CachedBroker) -> replication_pb2.BrokerEndpoint:
    return replication_pb2.BrokerEndpoint(
        broker_id=broker_id,
        grpc=encode_endpoint(broker.grpc),
        kafka=encode_endpoint(broker.kafka),
        broker_epoch=broker.epoch,
        rack=broker.rack,
    )


def add_range_read_to_server(
    server: grpc.aio.Server,
    manager: ReplicaManager,
    metadata: MetadataCache,
    rights: Callable[[], Rights],
    max_batch_bytes: Callable[[str], int],
    memory: ResponseMemory,
    pace: Callable[[], StreamPace] = StreamPace,
) -> None:
    """Register by hand: the frames of ``Read`` are raw bytes, not messages."""
    service = RangeReadService(manager.table, metadata, rights, max_batch_bytes, memory, pace)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "DescribeTopics": grpc.unary_unary_rpc_method_handler(
            service.describe_topics,
            request_deserializer=replication_pb2.DescribeTopicsRequest.FromString,
            response_serializer=replication_pb2.DescribeTopicsResponse.SerializeToString,
        ),
        "ListOffsets": grpc.unary_unary_rpc_method_handler(
            service.list_offsets,
            request_deserializer=replication_pb2.ListOffsetsRequest.FromString,
            response_serializer=replication_pb2.ListOffsetsResponse.SerializeToString,
        ),
        "Read": grpc.unary_stream_rpc_method_handler(service.read),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
