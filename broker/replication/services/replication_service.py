"""The gRPC service ``Replication`` for followers: raw frames on streams, and epoch questions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.services.replication_listener import ReplicationListener
from quorate.broker.replication.serving.fetch import epoch_end
from quorate.broker.replication.serving.replica_fetch_session import (
    ReplicaFetchSession,
    WrongSender,
    refuse_follower,
)
from quorate.broker.replication.streams.packed_codec import VERSION
from quorate.broker.replication.streams.protobuf_codec import decode_request, encode_response
from quorate.broker.replication.wakeup import Wakeup
from quorate.broker.security.peer_guard import peer_broker
from quorate.common.types import BrokerId, TopicId, TopicIdPartition
from quorate_proto.v1 import errors_pb2, replication_pb2

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

SERVICE = "quorate.v1.Replication"


class ReplicationService:
    """Serves followers with one session and two tasks per stream, and no task per batch."""

    def __init__(self, table: PartitionTable, listener: ReplicationListener | None = None) -> None:
        """``listener`` serves framed streams, or None if nobody does."""
        self._table = table
        self._listener = listener

    async def fetch(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Answer each request for data of ``Replication.Fetch`` once, after a long poll."""
        wakeup = Wakeup()
        session = ReplicaFetchSession(self._table, wakeup.wake, peer_broker(context))
        reader = asyncio.create_task(_take_requests(requests, session))
        reader.add_done_callback(lambda task: _reader_ended(task, wakeup))
        try:
            while not reader.done():
                wait_s = session.due_in_s()
                if wait_s is None or wait_s > 0:
                    await wakeup.wait(wait_s)
                else:
                    await context.write(encode_response(session.take_response()))
            await reader
        except MalformedFrame as error:
            log.warning("a follower's stream from %s is malformed: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except WrongSender as error:
            log.warning("a follower's stream from %s is refused: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        finally:
            reader.cancel()
            session.close()

    async def find_stream_listener(
        self, request: replication_pb2.FindStreamListenerRequest, context: Context
    ) -> replication_pb2.FindStreamListenerResponse:
        """Answer ``Replication.FindStreamListener``."""
        self._table.follower_heard(BrokerId(request.replica_id))
        port = 0 if self._listener is None else self._listener.port
        return replication_pb2.FindStreamListenerResponse(port=port, version=VERSION)

    async def offsets_for_leader_epoch(
        self, request: replication_pb2.OffsetsForLeaderEpochRequest, context: Context
    ) -> replication_pb2.OffsetsForLeaderEpochResponse:
        """Answer ``Replication.OffsetsForLeaderEpoch``: where epochs end in this leader's logs."""
        self._table.follower_heard(BrokerId(request.replica_id))
        response = replication_pb2.OffsetsForLeaderEpochResponse()
        for query in request.queries:
            response.answers.append(self._answer(query, BrokerId(request.replica_id)))
        return response

    def _answer(
        self, query: replication_pb2.EpochQuery, replica_id: BrokerId
    ) -> replication_pb2.EpochAnswer:
        hosted = self._table.get(TopicIdPartition(TopicId(query.topic_id), query.partition))
        code: int = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        if hosted is not None:
            code = refuse_follower(self._table, hosted, query.current_leader_epoch, replica_id)
        if hosted is None or code != errors_pb2.NONE:
            return replication_pb2.EpochAnswer(error_code=code, leader_epoch=-1, end_offset=-1)
        found = epoch_end(hosted, query.leader_epoch)
        return replication_pb2.EpochAnswer(
            leader_epoch=found.leader_epoch, end_offset=found.end_offset
        )


def _reader_ended(reader: "asyncio.Task[None]", wakeup: Wakeup) -> None:
    """Wake the task that responds. How a connection ended does not matter any more."""
    if not reader.cancelled() and (error := reader.exception()) is not None:
        log.debug("a follower's stream ended: %r", error)
    wakeup.wake()


async def _take_requests(requests: AsyncIterator[bytes], session: ReplicaFetchSession) -> None:
    async for frame in requests:
        session.on_request(decode_request(frame))


def add_replication_to_server(
    server: grpc.aio.Server, manager: ReplicaManager, listener: ReplicationListener | None = None
) -> None:
    """Register by hand: the frames of ``Fetch`` are raw bytes, not messages."""
    service = ReplicationService(manager.table, listener)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "FindStreamListener": grpc.unary_unary_rpc_method_handler(
            service.find_stream_listener,
            request_deserializer=replication_pb2.FindStreamListenerRequest.FromString,
            response_serializer=replication_pb2.FindStreamListenerResponse.SerializeToString,
        ),
        "Fetch": grpc.stream_stream_rpc_method_handler(service.fetch),
        "OffsetsForLeaderEpoch": grpc.unary_unary_rpc_method_handler(
            service.offsets_for_leader_epoch,
            request_deserializer=replication_pb2.OffsetsForLeaderEpochRequest.FromString,
            response_serializer=replication_pb2.OffsetsForLeaderEpochResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
