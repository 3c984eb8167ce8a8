"""The follower's side of replication: one long-lived stream to one leader broker (C12).

Three tasks share a stream. The *writer* sends requests: one that wants data at a time, and
positions and acknowledgements of durability whenever they arise. The *reader* appends what comes.
The *truncator* prepares partitions that are new on the stream. A partition that fails waits alone;
the stream goes on for the others.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

import grpc.aio

from broker.errors import KafkaError, error_name
from broker.peers import Peer
from broker.replication.following import Following, Phase
from broker.replication.frames import MalformedFrame, pack_frame, unpack_frame
from broker.replication.partition_table import PartitionTable
from broker.replication.truncator import Truncator
from broker.replication.waiters import Wakeup
from metadata_log.types import BrokerEpoch, BrokerId, Endpoint, TopicId, TopicIdPartition
from quorate_proto.v1 import errors_pb2, replication_pb2, replication_pb2_grpc

log = logging.getLogger(__name__)

FETCH_METHOD = "/quorate.v1.Replication/Fetch"

RECONNECT_FIRST_S = 0.05
RECONNECT_MAX_S = 1.0
WATCH_INTERVAL_S = 0.25
SILENCE_MAX_MS = 10_000
"""A leader that owes an answer for this long beyond the long poll is taken for gone."""

ASK_WITH_ACK_MAX_S = 0.02
"""So long a request for more waits for what came last to be durable, to tell both in one frame."""

EXPECTED_ERRORS = frozenset(
    {
        errors_pb2.FENCED_LEADER_EPOCH,
        errors_pb2.UNKNOWN_LEADER_EPOCH,
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Part of any change of leaders: one of the two was told before the other."""

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
        broker_epoch: Callable[[], BrokerEpoch | None],
        open_channel: Callable[[Peer], grpc.aio.Channel],
        may_ask: asyncio.Event,
    ) -> None:
        self.leader = leader
        self._table = table
        self._endpoint = endpoint
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._broker_epoch = broker_epoch
        self._open_channel = open_channel
        self._followings: dict[TopicIdPartition, Following] = {}
        self._stream_epoch = BrokerEpoch(-1)
        self._fetching = 0
        self._changed: dict[TopicIdPartition, Following] = {}
        self._forgotten: list[TopicIdPartition] = []
        self._wants_data = True
        self._asked_at_ms: int | None = None
        self._writer_wakeup = Wakeup()
        self._reconnect = Wakeup()
        self._truncator = Truncator(table.broker_id, table.now_ms, self._on_checked, may_ask)
        self._resumption: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._moving: set[asyncio.Task[None]] = set()
        """Logs that are about to begin later."""

    # -- partitions ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._followings

    def add(self, following: Following) -> None:
        """Fetch this partition too, after its check."""
        self._followings[following.tip] = following
        self._truncator.add(following)

    def remove(self, following: Following) -> None:
        """Nothing of this partition is appended from now on."""
        if self._followings.get(following.tip) is not following:
            return
        del self._followings[following.tip]
        self._truncator.discard(following)
        self._changed.pop(following.tip, None)
        if following.phase is Phase.FETCHING:
            self._forget(following)

    def position_changed(self, following: Following) -> None:
        """Its log grew or became durable: the leader is told with the next frame."""
        if not following.held:
            self._changed[following.tip] = following
            self._writer_wakeup.wake()

    @property
    def can_append(self) -> bool:
        """Whether there is room for what it fetches."""
        return not self._table.store.is_full

    def tell_positions(self) -> None:
        """The leader is told again how far every log is."""
        for following in self._followings.values():
            if following.phase is Phase.FETCHING:
                self.position_changed(following)

    def _on_checked(self, following: Following) -> None:
        self._fetching += 1
        self.position_changed(following)
        self._hold_back([following])

    def _forget(self, following: Following) -> None:
        """The leader is to forget its position, if it has it."""
        if following.held:
            following.held = False
            return
        self._fetching -= 1
        self._forgotten.append(following.tip)
        self._writer_wakeup.wake()

    def _back_off(self, following: Following) -> None:
        """This partition alone starts again from its check, later."""
        if following.phase is Phase.FETCHING:
            self._forget(following)
        self._changed.pop(following.tip, None)
        following.back_off(self._table.now_ms())
        self._truncator.add(following)

    # -- the throttle ----------------------------------------------------------------------------

    def _took_in(self, throttled_bytes: int) -> None:
        """An answer brought so much of throttled replicas: perhaps they have to wait now."""
        if throttled_bytes:
            self._table.throttles.follower.take(throttled_bytes, self._table.now_ms())
            self._hold_back(self._followings.values())

    def _hold_back(self, followings: Iterable[Following]) -> None:
        """Those of ``followings`` that are throttled wait while too much has come in already.

        The leader forgets their positions, so at most the answer under way comes in too much.
        """
        wait_ms = self._table.throttles.follower.wait_ms(self._table.now_ms())
        if not wait_ms:
            return
        for following in followings:
            fetches = following.phase is Phase.FETCHING and not following.held
            if fetches and self._is_throttled(following):
                self._forget(following)
                self._changed.pop(following.tip, None)
                following.held = True
        if self._resumption is None:
            self._resume_in(wait_ms)

    def _is_throttled(self, following: Following) -> bool:
        """What is in sync never is: it holds up the high watermark, or may do so soon."""
        covered = self._table.throttles.follower.covers(following.hosted.tp)
        return covered and not following.is_in_sync

    def _resume_in(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._resumption = loop.call_later(wait_ms / 1000, self._resume)

    def _resume(self) -> None:
        """Who was held back goes on, unless it is too early still."""
        self._resumption = None
        wait_ms = self._table.throttles.follower.wait_ms(self._table.now_ms())
        if wait_ms:
            self._resume_in(wait_ms)
            return
        for following in self._followings.values():
            if following.held:
                following.held = False
                self._on_checked(following)

    # -- the stream ------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"replica-fetcher-{self.leader}")

    async def close(self) -> None:
        for timer in (self._resumption, self._asking):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._moving, return_exceptions=True)

    def move_to(self, endpoint: Endpoint) -> None:
        """The leader is at another address now."""
        self._endpoint = endpoint
        self._reconnect.wake()

    async def _run(self) -> None:
        wait_s = RECONNECT_FIRST_S
        while True:
            endpoint, broker_epoch = self._endpoint, self._known_epoch()
            if endpoint is None or broker_epoch is None:
                await self._reconnect.wait(RECONNECT_FIRST_S)
                continue
            started_ms = self._table.now_ms()
            try:
                await self._stream(endpoint, broker_epoch)
            except (grpc.aio.AioRpcError, MalformedFrame, KafkaError, TimeoutError) as error:
                log.info(
                    "fetching from broker %d at %s ended: %s", self.leader, endpoint, _brief(error)
                )
            except Exception:
                log.exception("fetching from broker %d failed", self.leader)
            if self._table.now_ms() - started_ms > SILENCE_MAX_MS:
                wait_s = RECONNECT_FIRST_S
            await self._reconnect.wait(wait_s)
            wait_s = min(2 * wait_s, RECONNECT_MAX_S)

    def _known_epoch(self) -> BrokerEpoch | None:
        """This broker's registration; None before it has one."""
        epoch = self._broker_epoch()
        return None if epoch is None or epoch < 0 else epoch

    async def _stream(self, endpoint: Endpoint, broker_epoch: BrokerEpoch) -> None:
        """Fetch over one stream until it ends, or its address or this registration changes.

        A leader admits nobody to an ISR but the incarnation that told its positions, so a stream
        belongs to one registration.
        """
        self._start_afresh(broker_epoch)
        async with self._open_channel(Peer(self.leader, endpoint)) as channel:
            stub = replication_pb2_grpc.ReplicationStub(channel)
            call: FetchCall = channel.stream_stream(FETCH_METHOD)()
            tasks = [
                asyncio.create_task(self._read_frames(call)),
                asyncio.create_task(self._write_frames(call)),
                asyncio.create_task(self._truncator.run(stub.OffsetsForLeaderEpoch)),
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
            asked_at_ms = self._asked_at_ms
            if asked_at_ms is not None:
                silent_ms = self._table.now_ms() - asked_at_ms
                if silent_ms > self._max_wait_ms + SILENCE_MAX_MS:
                    raise TimeoutError(f"no answer for {silent_ms} ms")

    def _start_afresh(self, broker_epoch: BrokerEpoch) -> None:
        """A new stream knows no position, and every log is compared again."""
        self._stream_epoch = broker_epoch
        self._changed.clear()
        self._forgotten.clear()
        self._fetching = 0
        self._wants_data = True
        self._asked_at_ms = None
        for following in self._followings.values():
            following.phase = Phase.CHECKING
            following.held = False
            self._truncator.add(following)

    # -- requests --------------------------------------------------------------------------------

    async def _write_frames(self, call: FetchCall) -> None:
        while True:
            await self._writer_wakeup.wait()
            frame = self._next_frame()
            if frame is not None:
                await call.write(frame)

    def _next_frame(self) -> bytes | None:
        """Everything new in one frame; it wants data unless an answer is still to come."""
        wants_data = self._wants_data and self._fetching > 0
        if not (wants_data or self._changed or self._forgotten):
            return None
        request = replication_pb2.ReplicaFetchRequest(
            replica_id=self._table.broker_id,
            broker_epoch=self._stream_epoch,
            max_wait_ms=self._max_wait_ms,
            max_bytes=self._max_bytes,
            ack_only=not wants_data,
        )
        for tip in self._forgotten:
            request.positions.add(topic_id=tip.topic_id, partition=tip.partition, forget=True)
        for following in self._changed.values():
            following.tell_position(request)
        self._forgotten.clear()
        self._changed.clear()
        if wants_data:
            if self._asking is not None:
                self._asking.cancel()
            self._wants_data = False
            self._asked_at_ms = self._table.now_ms()
        return pack_frame(request.SerializeToString())

    # -- answers ---------------------------------------------------------------------------------

    async def _read_frames(self, call: FetchCall) -> None:
        store = self._table.store
        while True:
            frame = await call.read()
            if not isinstance(frame, bytes):
                log.info("broker %d closed the stream", self.leader)
                return
            self._asked_at_ms = None
            self._on_frame(frame)
            await store.wait_for_room()
            self._ask_for_more(len(frame))

    def _ask_for_more(self, received_bytes: int) -> None:
        """Together with the acknowledgement of what came; at once if there is much more to come.

        Then the leader sends while this broker writes. Else it is as fast as its own disk, and half
        the requests are saved.
        """
        self._wants_data = True
        if self._changed and received_bytes < self._max_bytes // 2:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(ASK_WITH_ACK_MAX_S, self._writer_wakeup.wake)
        else:
            self._writer_wakeup.wake()

    def _on_frame(self, frame: bytes) -> None:
        header, records = unpack_frame(frame)
        response = replication_pb2.ReplicaFetchResponse.FromString(header)
        begin = throttled_bytes = 0
        for fetched in response.partitions:
            end = begin + fetched.records_size
            if end > len(records):
                raise MalformedFrame(f"{len(records)} bytes of records, {end} announced")
            tip = TopicIdPartition(TopicId(fetched.topic_id), fetched.partition)
            following = self._followings.get(tip)
            if following is not None and following.phase is Phase.FETCHING:
                if fetched.error_code != errors_pb2.NONE:
                    self._on_error(following, fetched)
                elif fetched.leader_epoch == following.leader_epoch:
                    following.leader_high_watermark = fetched.high_watermark
                    following.leader_log_start = fetched.log_start_offset
                    if begin < end and self._is_throttled(following):
                        throttled_bytes += end - begin
                    self._append(following, records[begin:end], fetched.high_watermark)
            begin = end
        self._table.traffic.replicated_in_bytes += begin
        self._took_in(throttled_bytes)

    def _append(self, following: Following, records: memoryview, high_watermark: int) -> None:
        hosted = following.hosted
        if len(records):
            try:
                hosted.log.append_as_follower(records)
            except Exception as error:  # One partition's fault stops no other (KIP-461).
                unforeseen = not isinstance(error, KafkaError)
                # A full disk refuses all partitions, again and again: the store has said so once.
                level = logging.DEBUG if self._table.store.is_full else logging.ERROR
                log.log(level, "cannot append to %s: %s", hosted.tp, error, exc_info=unforeseen)
                self._back_off(following)
                self.follow_log_start(following)  # What the leader deleted makes room here, too.
                return
            if not following.held:
                self._changed[following.tip] = following
        following.failures = 0
        hosted.follow_high_watermark(high_watermark)
        hosted.log.transactions.settle(hosted.replica.high_watermark)
        self.follow_log_start(following)

    def follow_log_start(self, following: Following) -> None:
        """Begin where the leader's log begins, as far as that is durable here; then tell it."""
        partition_log = following.hosted.log
        start = min(following.leader_log_start, partition_log.flushed_offset)
        if start > partition_log.log_start_offset:
            task = asyncio.create_task(self._start_at(following, start))
            self._moving.add(task)
            task.add_done_callback(self._moving.discard)

    async def _start_at(self, following: Following, offset: int) -> None:
        hosted = following.hosted
        try:
            await hosted.log.start_at(offset)
        except KafkaError as error:
            log.warning("%s cannot begin at %d: %s", hosted.tp, offset, error)
            return
        hosted.wake_fetches()
        if following.phase is Phase.FETCHING and self._followings.get(following.tip) is following:
            self.position_changed(following)

    def _on_error(self, following: Following, fetched: replication_pb2.FetchedPartition) -> None:
        hosted = following.hosted
        if fetched.error_code == errors_pb2.OFFSET_OUT_OF_RANGE and (
            following.start_over or hosted.log.log_end_offset < fetched.log_start_offset
        ):
            following.restart_at = fetched.log_start_offset
        log.log(
            logging.DEBUG if fetched.error_code in EXPECTED_ERRORS else logging.WARNING,
            "broker %d answers %s for %s at offset %d in epoch %d",
            self.leader,
            error_name(fetched.error_code),
            hosted.tp,
            following.fetch_offset,
            following.leader_epoch,
        )
        self._back_off(following)


def _brief(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
