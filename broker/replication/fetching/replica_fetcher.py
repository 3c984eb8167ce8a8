"""A follower's connection to one leader: a long-lived stream, opened again when it ends (C12).

A stream is framed (``FramedFetchStream``) if the leader serves framed streams and they reach it,
else it is a call of gRPC. Meanwhile the *truncator* prepares partitions that are new on the stream;
it asks over gRPC. The contents of the frames are up to ``fetch_session_handler``.
"""

import asyncio
import logging
from typing import Final, TypeAlias

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import KafkaError
from quorate.broker.replication.fetching.fetch_session_handler import FetchSessionHandler
from quorate.broker.replication.fetching.fetch_streams import (
    FETCH_METHOD,
    FetchCall,
    FetchStream,
    FramedFetchStream,
    GrpcFetchStream,
    StreamRefused,
)
from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.streams.packed_codec import VERSION, Hello
from quorate.broker.replication.wakeup import Wakeup
from quorate.broker.rpc.peer_channels import Peer, PeerNetwork
from quorate.common.tls.identity import SecurityError
from quorate.common.types import BrokerEpoch, BrokerId, Endpoint
from quorate_proto.v1 import replication_pb2, replication_pb2_grpc

log = logging.getLogger(__name__)

RECONNECT_FIRST_S: Final = 0.05
RECONNECT_MAX_S: Final = 1.0
WATCH_INTERVAL_S: Final = 0.25
SILENCE_MAX_MS: Final = 10_000
"""The time beyond the long poll after which a leader that has not answered counts as gone."""

FRAMED_AGAIN_MS: Final = 60_000
"""The time between two tries of a follower that could not reach the replication port."""

_FAILURES: Final = (
    grpc.aio.AioRpcError,
    MalformedFrame,
    KafkaError,
    StreamRefused,
    OSError,
)
"""The errors that end a stream in the normal life of a cluster. ``OSError`` includes
``TimeoutError``.
"""


Stub: TypeAlias = "replication_pb2_grpc.ReplicationAsyncStub"


class ReplicaFetcher:
    """Fetches every partition that this broker follows at one leader."""

    def __init__(
        self,
        table: PartitionTable,
        leader: BrokerId,
        endpoint: Endpoint | None,
        *,
        max_wait_ms: int,
        max_bytes: int,
        identity: BrokerIdentity,
        network: PeerNetwork,
        may_ask: asyncio.Event,
    ) -> None:
        self.session = FetchSessionHandler(
            table,
            leader,
            self._wake,
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            may_ask=may_ask,
        )
        self._table = table
        self._endpoint = endpoint
        self._max_wait_ms = max_wait_ms
        self._identity = identity
        self._network = network
        self._reconnect = Wakeup()
        self._task: asyncio.Task[None] | None = None
        self._open_stream: FetchStream | None = None
        self._unreachable_port = 0
        """The replication port that could not be reached, or 0."""
        self._framed_again_ms = 0

    def start(self) -> None:
        """Connect and fetch until ``close``."""
        self._task = asyncio.create_task(self._run(), name=f"replica-fetcher-{self.session.leader}")

    async def close(self) -> None:
        """Stop fetching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._table.silence.leave_leader(self.session.leader, self._table.clock.now_ms())
        await self.session.close()

    def move_to(self, endpoint: Endpoint) -> None:
        """Reconnect: the leader is at another address now."""
        self._endpoint = endpoint
        self._reconnect.wake()

    async def _run(self) -> None:
        wait_s = RECONNECT_FIRST_S
        while True:
            endpoint, broker_epoch = self._endpoint, self._known_epoch()
            if endpoint is None or broker_epoch is None:
                await self._reconnect.wait(RECONNECT_FIRST_S)
                continue
            started_ms = self._table.clock.now_ms()
            self._table.silence.ask_leader(self.session.leader, started_ms)
            try:
                await self._stream(endpoint, broker_epoch)
            except _FAILURES as error:
                log.info(
                    "fetching from broker %d at %s ended: %s",
                    self.session.leader,
                    endpoint,
                    _brief(error),
                )
            except Exception:
                log.exception("fetching from broker %d failed", self.session.leader)
            if self._table.clock.now_ms() - started_ms > SILENCE_MAX_MS:
                wait_s = RECONNECT_FIRST_S
            await self._reconnect.wait(wait_s)
            wait_s = min(2 * wait_s, RECONNECT_MAX_S)

    def _wake(self) -> None:
        if self._open_stream is not None:
            self._open_stream.wake()

    def _known_epoch(self) -> BrokerEpoch | None:
        """Return the epoch of this broker's registration, or None without one."""
        epoch = self._identity.epoch
        return None if epoch is None or epoch < 0 else epoch

    async def _stream(self, endpoint: Endpoint, broker_epoch: BrokerEpoch) -> None:
        """Fetch over one stream until it ends, or its address or this registration changes.

        A leader admits nobody to an ISR but the incarnation that told its positions, so a stream
        belongs to one registration.
        """
        self.session.start_afresh(broker_epoch)
        peer = Peer(self.session.leader, endpoint)
        async with self._network.open_channel(peer) as channel:
            stub: Stub = replication_pb2_grpc.ReplicationStub(channel)

            async def ask(
                request: replication_pb2.OffsetsForLeaderEpochRequest, /
            ) -> replication_pb2.OffsetsForLeaderEpochResponse:
                silence = self._table.silence
                silence.ask_leader(self.session.leader, self._table.clock.now_ms())
                response = await stub.OffsetsForLeaderEpoch(request)
                silence.hear_leader(self.session.leader)
                return response

            stream = await self._opened(peer, stub, channel)
            self._open_stream = stream
            truncator = asyncio.create_task(self.session.truncator.run(ask))
            try:
                await self._watch([stream.ended, truncator], peer, broker_epoch)
            finally:
                self._open_stream = None
                truncator.cancel()
                await asyncio.gather(truncator, return_exceptions=True)
                await stream.close()

    async def _opened(self, peer: Peer, stub: Stub, channel: grpc.aio.Channel) -> FetchStream:
        """Return a framed stream, or a call of gRPC where there is none to be had."""
        room = self._table.store.room
        port = await self._stream_port(stub)
        if port and port != self._unreachable_port:
            hello = Hello(VERSION, self._table.broker_id, peer.broker_id)
            framed = FramedFetchStream(self.session, room, hello)
            if await self._connected(peer, port, framed):
                return framed
            await framed.close()
        call: FetchCall = channel.stream_stream(FETCH_METHOD)()
        return GrpcFetchStream(self.session, room, call)

    async def _connected(self, peer: Peer, port: int, protocol: asyncio.BaseProtocol) -> bool:
        """Connect to the replication port, and return whether that was possible."""
        try:
            await self._network.connect(peer, port, protocol)
        except (OSError, SecurityError) as error:
            self._framed_again_ms = self._table.clock.now_ms() + FRAMED_AGAIN_MS
            if self._unreachable_port != port:
                self._unreachable_port = port
                log.warning(
                    "broker %d cannot be reached at its replication.port, %s:%d (%s): its "
                    "partitions are fetched over gRPC for now, which costs more; open the port "
                    "between brokers, or set replication.port=-1 there",
                    peer.broker_id,
                    peer.endpoint.host,
                    port,
                    error,
                )
            return False
        self._unreachable_port = 0
        return True

    async def _stream_port(self, stub: Stub) -> int:
        """Return the port where the leader serves framed streams, or 0 if it serves none."""
        request = replication_pb2.FindStreamListenerRequest(replica_id=self._table.broker_id)
        try:
            found = await stub.FindStreamListener(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return 0  # A leader of an older release.
            raise
        return found.port if found.version >= VERSION else 0

    async def _watch(
        self,
        endings: "list[asyncio.Future[None]]",
        peer: Peer,
        broker_epoch: BrokerEpoch,
    ) -> None:
        """Return or raise when the stream is over, or when a better one is to be had."""
        while self._endpoint == peer.endpoint and self._known_epoch() == broker_epoch:
            done, _ = await asyncio.wait(
                endings, timeout=WATCH_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                next(ending for ending in endings if ending in done).result()
                log.info("broker %d closed the stream", self.session.leader)
                return
            asked_at_ms = self.session.asked_at_ms
            if asked_at_ms is not None:
                silent_ms = self._table.clock.now_ms() - asked_at_ms
                if silent_ms > self._max_wait_ms + SILENCE_MAX_MS:
                    raise TimeoutError(f"no answer for {silent_ms} ms")
            if await self._is_reached_again(peer):
                log.info("broker %d can be reached at its replication.port again", peer.broker_id)
                return

    async def _is_reached_again(self, peer: Peer) -> bool:
        """Try the replication port that could not be reached, once in a while."""
        port = self._unreachable_port
        if not port or self._table.clock.now_ms() < self._framed_again_ms:
            return False
        return await self._connected(peer, port, _HangsUp())


class _HangsUp(asyncio.Protocol):
    """The protocol of a connection which only shows that the port can be reached."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _brief(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
