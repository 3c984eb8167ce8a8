"""The follower's side of one stream: what its leader is told, and what becomes of its answers.

The counterpart of ``fetch_session``, which is the leader's side. Frames are made and taken in here;
``fetcher`` carries them. A partition that fails waits alone; the others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from broker.background_tasks import BackgroundTasks
from broker.errors import KafkaError, error_name
from broker.replication.following import Following, Phase
from broker.replication.frames import MalformedFrame, pack_frame, unpack_frame
from broker.replication.partition_table import PartitionTable
from broker.replication.truncator import Truncator
from metadata_log.types import BrokerEpoch, BrokerId, TopicId, TopicIdPartition
from quorate_proto.v1 import errors_pb2, replication_pb2

log = logging.getLogger(__name__)

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


class FollowerSession:
    """Every partition that this broker follows at one leader, whatever stream there is to it."""

    def __init__(
        self,
        table: PartitionTable,
        leader: BrokerId,
        wake: Callable[[], None],
        *,
        max_wait_ms: int,
        max_bytes: int,
        may_ask: asyncio.Event,
    ) -> None:
        """``wake`` is called when there may be a frame to send.

        ``max_wait_ms``, ``max_bytes``: of one answer. ``may_ask``: logs are compared meanwhile.
        """
        self.leader = leader
        self.truncator = Truncator(table.broker_id, table.now_ms, self._on_checked, may_ask)
        self.asked_at_ms: int | None = None
        """Since when an answer is owed; None: none is."""
        self._table = table
        self._wake = wake
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._followings: dict[TopicIdPartition, Following] = {}
        self._stream_epoch = BrokerEpoch(-1)
        self._fetching = 0
        self._changed: dict[TopicIdPartition, Following] = {}
        self._forgotten: list[TopicIdPartition] = []
        self._wants_data = True
        self._resumption: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._moving = BackgroundTasks()
        """Logs that are about to begin later."""

    async def close(self) -> None:
        """Nothing is to be sent any more; logs that are about to begin later do."""
        for timer in (self._resumption, self._asking):
            if timer is not None:
                timer.cancel()
        await self._moving.ended()

    # -- partitions ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._followings

    def add(self, following: Following) -> None:
        """Fetch this partition too, after its check."""
        self._followings[following.tip] = following
        self.truncator.add(following)

    def remove(self, following: Following) -> None:
        """Nothing of this partition is appended from now on."""
        if self._followings.get(following.tip) is not following:
            return
        del self._followings[following.tip]
        self.truncator.discard(following)
        self._changed.pop(following.tip, None)
        if following.phase is Phase.FETCHING:
            self._forget(following)

    def position_changed(self, following: Following) -> None:
        """Its log grew or became durable: the leader is told with the next frame."""
        if not following.held:
            self._changed[following.tip] = following
            self._wake()

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
        self._wake()

    def _back_off(self, following: Following) -> None:
        """This partition alone starts again from its check, later."""
        if following.phase is Phase.FETCHING:
            self._forget(following)
        self._changed.pop(following.tip, None)
        following.back_off(self._table.now_ms())
        self.truncator.add(following)

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

    # -- requests --------------------------------------------------------------------------------

    def start_afresh(self, broker_epoch: BrokerEpoch) -> None:
        """A new stream knows no position, and every log is compared again."""
        self._stream_epoch = broker_epoch
        self._changed.clear()
        self._forgotten.clear()
        self._fetching = 0
        self._wants_data = True
        self.asked_at_ms = None
        for following in self._followings.values():
            following.phase = Phase.CHECKING
            following.held = False
            self.truncator.add(following)

    def next_frame(self) -> bytes | None:
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
            self.asked_at_ms = self._table.now_ms()
        return pack_frame(request.SerializeToString())

    def ask_for_more(self, received_bytes: int) -> None:
        """After an answer of so many bytes: together with the acknowledgement of what came.

        At once if there is much more to come: the leader sends while this broker writes. Else it is
        as fast as its own disk, and half the requests are saved.
        """
        self._wants_data = True
        if self._changed and received_bytes < self._max_bytes // 2:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(ASK_WITH_ACK_MAX_S, self._wake)
        else:
            self._wake()

    # -- answers ---------------------------------------------------------------------------------

    def on_frame(self, frame: bytes) -> None:
        """Take in an answer.

        Raises:
            MalformedFrame, google.protobuf.message.DecodeError: the stream is to be ended.
        """
        self.asked_at_ms = None
        header, records = unpack_frame(frame)
        response = replication_pb2.ReplicaFetchResponse.FromString(header)
        begin = throttled_bytes = 0
        is_limited = self._table.throttles.follower.is_limited
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
                    if is_limited and begin < end and self._is_throttled(following):
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
            self._moving.start(self._start_at(following, start))

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
            following.start_over
            or hosted.log.log_end_offset < fetched.log_start_offset
            or hosted.log.log_end_offset == hosted.log.log_start_offset
        ):
            # Of a log without records: after an unclean election the leader may end before it.
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
