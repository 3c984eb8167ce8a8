"""The gRPC service ``RangeWrite`` for Spark and other writers of batches.

It is the same append as Kafka's Produce with acks=all, over a stream of raw frames. Each frame has
many partitions, and many frames are under way. They are appended in the order in which they come
and answered as they are committed. Batches carry producer id, epoch and sequence, so the append
notices a frame that is sent again after a lost answer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.quota.stream_pace import StreamPace
from quorate.broker.replication.api import ACKS_ALL, ProduceEntry, ProduceOutcome
from quorate.broker.replication.frames import MalformedFrame, unpack_frame
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2, replication_pb2

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

SERVICE: Final = "quorate.v1.RangeWrite"

STREAM_BYTES_MAX: Final = 16 << 20
"""The unanswered bytes of one stream beyond which nothing more is taken from it."""

TIMEOUT_MS_MAX: Final = 300_000
"""The longest wait for the in-sync replicas that a frame may ask for."""

FIRST_EPOCH: Final = 0


class ProducerIdSource(Protocol):
    """Gives out producer ids: ``coordinator.transactions.producer_ids.ProducerIds`` does."""

    async def take(self) -> int:
        """Return an id that nobody has had."""


class RangeWriteService:
    """Serves writers. It never looks at records. They are copied once, into the log."""

    def __init__(
        self,
        manager: ReplicaManager,
        producer_ids: ProducerIdSource,
        rights: Callable[[], Rights],
        pace: Callable[[], StreamPace] = StreamPace,
    ) -> None:
        """``rights`` returns those of the caller that is being served, and ``pace`` the pace of its
        quota.
        """
        self._pace = pace
        self._manager = manager
        self._producer_ids = producer_ids
        self._rights = rights

    async def init_producer_id(
        self, request: replication_pb2.InitProducerIdRequest, context: Context
    ) -> replication_pb2.InitProducerIdResponse:
        """Return an id that nobody has had."""
        try:
            self._rights().require_idempotent_write()
            producer_id = await self._producer_ids.take()
        except KafkaError as error:
            return replication_pb2.InitProducerIdResponse(
                error_code=error.code, error_message=error.message, producer_id=-1
            )
        return replication_pb2.InitProducerIdResponse(
            producer_id=producer_id, producer_epoch=FIRST_EPOCH
        )

    async def write(self, frames: AsyncIterator[bytes], context: Context) -> None:
        """Answer each frame once, when all its partitions are committed or refused."""
        rights = self._rights()
        stream = WriteStream(lambda frame: self._append(frame, rights), self._pace())
        reader = asyncio.create_task(stream.take(frames))
        try:
            while (answer := await stream.next_answer()) is not None:
                await context.write(answer)
            await reader
        except (MalformedFrame, DecodeError) as error:
            log.warning("a writer's stream from %s is malformed: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except KafkaError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        finally:
            reader.cancel()
            stream.close()

    async def _append(self, frame: bytes, rights: Rights) -> bytes:
        """Append a frame and return its answer.

        It appends before its first await: that keeps the frames of a stream in order.

        Rights are looked up for every frame: they may change while a stream is open.
        """
        header, records = unpack_frame(frame)
        request = replication_pb2.RangeWriteRequest.FromString(header)
        entries = _entries(request, records)
        outcomes = [self._refusal(one, rights) for one in request.partitions]
        appended = await self._manager.produce(
            [entry for entry, refusal in zip(entries, outcomes, strict=True) if refusal is None],
            ACKS_ALL,
            min(request.timeout_ms, TIMEOUT_MS_MAX),
        )
        remaining = iter(appended)
        response = replication_pb2.RangeWriteResponse(request_id=request.request_id)
        for refusal in outcomes:
            outcome = next(remaining) if refusal is None else refusal
            response.outcomes.add(
                error_code=outcome.error_code,
                error_message=outcome.error_message or "",
                base_offset=outcome.base_offset,
            )
        return response.SerializeToString()

    def _refusal(
        self, wanted: replication_pb2.WrittenPartition, rights: Rights
    ) -> ProduceOutcome | None:
        """Return why nothing of a partition is appended, or None if it may be."""
        if not rights.may_topic(AclOperation.WRITE, wanted.topic):
            return ProduceOutcome(
                errors_pb2.TOPIC_AUTHORIZATION_FAILED,
                rights.refusal(AclOperation.WRITE, ResourceType.TOPIC, wanted.topic),
            )
        if wanted.topic in INTERNAL_TOPICS:
            return ProduceOutcome(
                errors_pb2.INVALID_TOPIC_EXCEPTION,
                f"coordinators alone write to {wanted.topic}",
            )
        tp = TopicPartition(wanted.topic, wanted.partition)
        hosted = self._manager.table.named(tp)
        if hosted is not None and wanted.topic_id and hosted.tip.topic_id != wanted.topic_id:
            return ProduceOutcome(
                errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
                f"{tp} is not of topic id {wanted.topic_id.hex()}: the topic was re-created",
            )
        return None


class WriteStream:
    """The unanswered frames of one stream; their bytes are bounded."""

    def __init__(
        self, append: Callable[[bytes], Awaitable[bytes]], pace: StreamPace | None = None
    ) -> None:
        self._append = append
        self._pace = pace or StreamPace()
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._appending: set[asyncio.Task[None]] = set()
        self._open_bytes = 0
        self._room = asyncio.Event()
        self._failure: BaseException | None = None

    async def take(self, frames: AsyncIterator[bytes]) -> None:
        """Begin with each frame as it comes, while there is room, at the pace of the writer's
        quota. Return when all are answered.

        Raises:
            KafkaError: too many wait for the same quota.
        """
        try:
            async for frame in frames:
                await self._pace.wait()
                self._pace.count(len(frame))
                task = asyncio.create_task(self._answer(frame))
                self._appending.add(task)
                task.add_done_callback(self._appending.discard)
                self._open_bytes += len(frame)
                while self._open_bytes >= STREAM_BYTES_MAX and self._failure is None:
                    self._room.clear()
                    await self._room.wait()
                if self._failure is not None:
                    break
            await asyncio.gather(*self._appending)
        finally:
            self._answers.put_nowait(None)

    async def next_answer(self) -> bytes | None:
        """Return the answers as they come, and None once there are no more.

        Raises:
            MalformedFrame, DecodeError: a frame cannot be read.
        """
        answer = await self._answers.get()
        if self._failure is not None:
            raise self._failure
        return answer

    def close(self) -> None:
        """Wait for no answers any more; what was appended stays."""
        for task in self._appending:
            task.cancel()

    async def _answer(self, frame: bytes) -> None:
        try:
            self._answers.put_nowait(await self._append(frame))
        except Exception as error:  # noqa: BLE001 - raised to who takes answers
            self._failure = error
            self._answers.put_nowait(None)
        self._open_bytes -= len(frame)
        self._room.set()


def _entries(request: replication_pb2.RangeWriteRequest, records: memoryview) -> list[ProduceEntry]:
    """Cut each partition's batches out of the frame.

    Raises:
        MalformedFrame: the sizes are not those of the raw part.
    """
    sizes = [one.records_size for one in request.partitions]
    if any(size < 0 for size in sizes) or sum(sizes) != len(records):
        raise MalformedFrame(f"the sizes {sizes} are not those of {len(records)} bytes of batches")
    entries = []
    position = 0
    for wanted in request.partitions:
        end = position + wanted.records_size
        tp = TopicPartition(wanted.topic, wanted.partition)
        entries.append(ProduceEntry(tp, records[position:end]))
        position = end
    return entries


def add_range_write_to_server(
    server: grpc.aio.Server,
    manager: ReplicaManager,
    producer_ids: ProducerIdSource,
    rights: Callable[[], Rights],
    pace: Callable[[], StreamPace] = StreamPace,
) -> None:
    """Register by hand: the frames of ``Write`` are raw bytes, not messages."""
    service = RangeWriteService(manager, producer_ids, rights, pace)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "InitProducerId": grpc.unary_unary_rpc_method_handler(
            service.init_producer_id,
            request_deserializer=replication_pb2.InitProducerIdRequest.FromString,
            response_serializer=replication_pb2.InitProducerIdResponse.SerializeToString,
        ),
        "Write": grpc.stream_stream_rpc_method_handler(service.write),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
