"""A follower's connection to one leader: a long-lived stream, opened again when it ends (C12).

Three tasks share a stream. The *writer* sends requests: one that wants data at a time, and
positions and acknowledgements of durability whenever they arise. The *reader* appends what
comes. The *truncator* prepares partitions that are new on the stream. The contents of the frames
are up to ``fetch_session_handler``.
"""

import asyncio
import logging

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import KafkaError
from quorate.broker.replication.fetching.fetch_session_handler import FetchSessionHandler
from quorate.broker.replication.frames import MalformedFrame
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.wakeup import Wakeup
from quorate.broker.rpc.peer_channels import Peer, PeerNetwork
from quorate.common.types import BrokerEpoch, BrokerId, Endpoint
from quorate_proto.v1 import replication_pb2, replication_pb2_grpc

log = logging.getLogger(__name__)

FETCH_METHOD = "/quorate.v1.Replication/Fetch"

RECONNECT_FIRST_S = 0.05
RECONNECT_MAX_S = 1.0
WATCH_INTERVAL_S = 0.25
SILENCE_MAX_MS = 10_000
"""The time beyond the long poll after which a leader that has not answered counts as gone."""

FetchCall = grpc.aio.StreamStreamCall[bytes, bytes]


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
        self._writer_wakeup = Wakeup()
        self.session = FetchSessionHandler(
            table,
            leader,
            self._writer_wakeup,
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
            except (grpc.aio.AioRpcError, MalformedFrame, KafkaError, TimeoutError) as error:
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

    def _asks(self) -> None:
        """Note that the leader owes an answer from now on."""
        self._table.silence.ask_leader(self.session.leader, self._table.clock.now_ms())

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
        async with self._network.open_channel(Peer(self.session.leader, endpoint)) as channel:
            stub = replication_pb2_grpc.ReplicationStub(channel)

            async def ask(
                request: replication_pb2.OffsetsForLeaderEpochRequest, /
            ) -> replication_pb2.OffsetsForLeaderEpochResponse:
                self._asks()
                response = await stub.OffsetsForLeaderEpoch(request)
                self._table.silence.hear_leader(self.session.leader)
                return response

            call: FetchCall = channel.stream_stream(FETCH_METHOD)()
            tasks = [
                asyncio.create_task(self._read_frames(call)),
                asyncio.create_task(self._write_frames(call)),
                asyncio.create_task(self.session.truncator.run(ask)),
            ]
            try:
                await self._watch(tasks, endpoint, broker_epoch)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                call.cancel()

    async def _watch(
        self, tasks: list["asyncio.Task[None]"], endpoint: Endpoint, broker_epoch: BrokerEpoch
    ) -> None:
        while self._endpoint == endpoint and self._known_epoch() == broker_epoch:
            done, _ = await asyncio.wait(
                tasks, timeout=WATCH_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                next(task for task in tasks if task in done).result()
                return
            asked_at_ms = self.session.asked_at_ms
            if asked_at_ms is not None:
                silent_ms = self._table.clock.now_ms() - asked_at_ms
                if silent_ms > self._max_wait_ms + SILENCE_MAX_MS:
                    raise TimeoutError(f"no answer for {silent_ms} ms")

    async def _write_frames(self, call: FetchCall) -> None:
        while True:
            await self._writer_wakeup.wait()
            frame = self.session.next_frame()
            if frame is not None:
                if self.session.asked_at_ms is not None:
                    self._asks()
                await call.write(frame)

    async def _read_frames(self, call: FetchCall) -> None:
        store = self._table.store
        while True:
            frame = await call.read()
            if not isinstance(frame, bytes):
                log.info("broker %d closed the stream", self.session.leader)
                return
            self._table.silence.hear_leader(self.session.leader)
            self.session.on_frame(frame)
            await store.writer.wait_for_room()
            self.session.ask_for_more(len(frame))


def _brief(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
