"""``Replication`` served to followers: raw frames on long-lived streams, and epoch questions."""

import asyncio
import logging
from collections.abc import AsyncIterator

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from broker.replication.consume import epoch_end
from broker.replication.fetch_session import FetchSession, WrongSender, refuse_follower
from broker.replication.frames import MalformedFrame
from broker.replication.manager import ReplicaManager
from broker.replication.partition_table import PartitionTable
from broker.replication.waiters import Wakeup
from broker.security.peer_guard import peer_broker
from metadata_log.types import BrokerId, TopicId, TopicIdPartition
from quorate_proto.v1 import errors_pb2, replication_pb2

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

SERVICE = "quorate.v1.Replication"


class ReplicationService:
    """One ``FetchSession`` per stream; two tasks per stream, none per batch."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    async def fetch(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """``Replication.Fetch``: answers each request for data once, after a long poll."""
        wakeup = Wakeup()
        session = FetchSession(self._table, wakeup.wake, peer_broker(context))
        reader = asyncio.create_task(_take_requests(requests, session))
        reader.add_done_callback(lambda task: _reader_ended(task, wakeup))
        try:
            while not reader.done():
                wait_s = self._due_in_s(session)
                if wait_s is None or wait_s > 0:
                    await wakeup.wait(wait_s)
                else:
                    await context.write(session.take_response())
            await reader
        except (MalformedFrame, DecodeError) as error:
            log.warning("a follower's stream from %s is malformed: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except WrongSender as error:
            log.warning("a follower's stream from %s is refused: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        finally:
            reader.cancel()
            session.close()

    def _due_in_s(self, session: FetchSession) -> float | None:
        """Seconds until a response is due, or may be; None before the first request.

        While none is wanted, as long as a long poll takes: a request that comes meanwhile, and
        that nothing can be answered to yet, need not wake anybody: its time is up later than that.
        """
        if not session.wants_data:
            return session.max_wait_ms / 1000 or None
        if session.has_news:
            return 0.0
        left_ms = session.asked_at_ms + session.max_wait_ms - self._table.now_ms()
        return min(left_ms, session.throttled_ms or left_ms) / 1000

    async def offsets_for_leader_epoch(
        self, request: replication_pb2.OffsetsForLeaderEpochRequest, context: Context
    ) -> replication_pb2.OffsetsForLeaderEpochResponse:
        """``Replication.OffsetsForLeaderEpoch``: where epochs end in this leader's logs."""
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
    """Wake the responder; how a connection ended is of no interest once it has."""
    if not reader.cancelled() and (error := reader.exception()) is not None:
        log.debug("a follower's stream ended: %r", error)
    wakeup.wake()


async def _take_requests(requests: AsyncIterator[bytes], session: FetchSession) -> None:
    async for frame in requests:
        session.on_request(frame)


def add_replication_to_server(server: grpc.aio.Server, manager: ReplicaManager) -> None:
    """Register by hand: frames of ``Fetch`` are raw bytes, not messages."""
    service = ReplicationService(manager.table)
    handlers = {
        "Fetch": grpc.stream_stream_rpc_method_handler(service.fetch),
        "OffsetsForLeaderEpoch": grpc.unary_unary_rpc_method_handler(
            service.offsets_for_leader_epoch,
            request_deserializer=replication_pb2.OffsetsForLeaderEpochRequest.FromString,
            response_serializer=replication_pb2.OffsetsForLeaderEpochResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
