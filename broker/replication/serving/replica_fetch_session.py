"""The leader's side of one follower's stream: positions, and the news for each (C12).

The session remembers positions, so an idle partition costs nothing: appends, high watermarks and
changes of leadership mark the partitions they touch, and a response looks only at those. A position
that was sent data waits for the follower's next request before it is sent more; a repeated position
is an acknowledgement of durability alone.

Followers are served only what is durable here. So a follower never holds what its leader could
forget in a crash, and a restarted leader's log always contains its followers' logs.
"""

import logging
from collections.abc import Callable, Sequence

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import ColdRead
from quorate.broker.replication.api import Bytes
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.partition.checks import check_fetch_offset, check_leader_epoch
from quorate.broker.replication.serving.ready_positions import FollowerPosition, ReadyPositions
from quorate.broker.replication.streams.fetch_messages import (
    FetchedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)
from quorate.common.types import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, TopicIdPartition
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

HIGH_WATERMARKS_PER_FRAME_MAX = 2_000


class WrongSender(Exception):
    """A request names another broker than the one whose certificate its connection has."""


class ReplicaFetchSession:
    """The state of one follower's stream."""

    def __init__(
        self,
        table: PartitionTable,
        wake: Callable[[], None],
        follower: BrokerId | None = None,
    ) -> None:
        """``wake`` is called when a response may be due.

        ``follower`` is the broker whose certificate the connection has, or None without one.
        """
        self._table = table
        self._follower = follower
        self._wake = wake
        self._positions: dict[TopicIdPartition, FollowerPosition] = {}
        self._ready = ReadyPositions(table, wake)
        self._watermarks: dict[TopicIdPartition, FollowerPosition] = {}
        self._refusals: list[FetchedPartition] = []
        self._start_moved = False
        self._replica_id = NO_BROKER
        self._max_bytes = 0
        self.max_wait_ms = 0
        self.wants_data = False
        """Whether a request is unanswered: exactly one response is due."""
        self.asked_at_ms = 0

    @property
    def has_news(self) -> bool:
        """Whether there is data, an error, or a log that begins later.

        High watermarks alone can wait: they go along with the next response, at the end of the
        long poll at the latest.
        """
        return self._ready.has_any() or bool(self._refusals or self._start_moved)

    @property
    def throttled_ms(self) -> int:
        """The time for which the positions that are held back still have to wait, or 0."""
        return self._ready.throttled_ms

    def close(self) -> None:
        """Watch no partition any more."""
        for position in self._positions.values():
            position.hosted.watchers.pop(self, None)
        self._ready.close()
        self._positions.clear()
        self._watermarks.clear()

    # -- requests --------------------------------------------------------------------------------

    def on_request(self, request: ReplicaFetchRequest) -> None:
        """Take in one frame of the follower.

        Raises:
            WrongSender: end the stream, the frame names another broker.
        """
        if self._follower not in (None, request.replica_id):
            raise WrongSender(f"broker {self._follower} asks as broker {request.replica_id}")
        now_ms = self._table.clock.now_ms()
        self._replica_id = replica_id = request.replica_id
        self._table.follower_heard(replica_id)
        for told in request.positions:
            if told.forget:
                self._drop(told.tip)
            else:
                self._on_position(told, replica_id, request.broker_epoch, now_ms)
        if not self._positions:
            self._table.silence.excuse_follower(replica_id)
        waits_otherwise = False
        if not request.ack_only:
            max_wait_ms = self._table.fetch_wait_ms(request.max_wait_ms)
            waits_otherwise = max_wait_ms != self.max_wait_ms
            self.max_wait_ms = max_wait_ms
            self._max_bytes = request.max_bytes
            self.wants_data = True
            self.asked_at_ms = now_ms
        if self.wants_data and (waits_otherwise or self._ready.is_held_back or self.has_news):
            self._wake()

    def _on_position(
        self,
        told: ReplicaPosition,
        replica_id: BrokerId,
        broker_epoch: BrokerEpoch,
        now_ms: int,
    ) -> None:
        tip = told.tip
        hosted = self._table.get(tip)
        code = self._refusal(hosted, told.current_leader_epoch, replica_id)
        if hosted is None or code != errors_pb2.NONE:
            self._refuse(tip, hosted, code)
            return
        keeps_deleted = told.log_start_offset < hosted.log.log_start_offset
        effects = hosted.replica.follower_progress(
            replica_id, broker_epoch, told.flushed_offset, now_ms, keeps_deleted=keeps_deleted
        )
        self._table.run(hosted, effects)
        position = self._positions.get(tip)
        if position is not None:
            if position.note_log_start(told.log_start_offset):
                hosted.wake_fetches()
            if position.fetch_offset == told.fetch_offset:
                return
        partition_log = hosted.log
        start, end = partition_log.log_start_offset, partition_log.log_end_offset
        code = check_fetch_offset(told.fetch_offset, start, end)
        if code != errors_pb2.NONE:
            self._refuse(tip, hosted, code)
            return
        if position is None:
            position = FollowerPosition(
                hosted, told.current_leader_epoch, told.fetch_offset, told.log_start_offset
            )
            self._positions[tip] = position
            hosted.watchers[self] = None
            self._watermarks[tip] = position
        position.move(told.fetch_offset)
        self._ready.mark(position)

    def _refusal(
        self, hosted: HostedPartition | None, leader_epoch: int, replica_id: BrokerId
    ) -> int:
        if hosted is None:
            return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        return refuse_follower(self._table, hosted, leader_epoch, replica_id)

    def _refuse(self, tip: TopicIdPartition, hosted: HostedPartition | None, code: int) -> None:
        """Answer with an error; the follower has to tell its position again."""
        self._drop(tip)
        high_watermark = log_start_offset = leader_epoch = 0
        if hosted is not None:
            high_watermark = hosted.replica.high_watermark
            log_start_offset = hosted.log.log_start_offset
            leader_epoch = hosted.replica.leader_epoch
        self._refusals.append(
            FetchedPartition(tip, code, high_watermark, log_start_offset, leader_epoch)
        )

    def _drop(self, tip: TopicIdPartition) -> None:
        position = self._positions.pop(tip, None)
        if position is not None:
            position.hosted.watchers.pop(self, None)
            self._ready.drop(tip)
            self._watermarks.pop(tip, None)

    # -- news ------------------------------------------------------------------------------------

    def on_readable(self, hosted: HostedPartition) -> None:
        """Note that more of the log is durable."""
        position = self._positions.get(hosted.tip)
        if position is not None and self._ready.mark(position):
            self._wake()

    def _is_throttled(self, hosted: HostedPartition) -> bool:
        """Say whether it is throttled. A member of the ISR never is: it moves the watermark."""
        covered = self._table.throttles.leader.covers(hosted.tp)
        return covered and self._replica_id not in hosted.replica.isr.committed

    def on_high_watermark(self, hosted: HostedPartition) -> None:
        """Note the new high watermark for the next response."""
        position = self._positions.get(hosted.tip)
        if position is not None:
            self._watermarks[hosted.tip] = position

    def on_log_start(self, hosted: HostedPartition) -> None:
        """Tell the follower at once: a deletion of records waits for it."""
        position = self._positions.get(hosted.tip)
        if position is not None:
            self._watermarks[hosted.tip] = position
            self._start_moved = True
            self._wake()

    def log_start_of(self, hosted: HostedPartition) -> tuple[BrokerId, int] | None:
        """Return the follower and where its log begins, or None without a position there."""
        position = self._positions.get(hosted.tip)
        return None if position is None else (self._replica_id, position.log_start_offset)

    def on_leadership(self, hosted: HostedPartition) -> None:
        """Refuse a position of another leader epoch: positions hold in one epoch."""
        position = self._positions.get(hosted.tip)
        if position is None:
            return
        code: int = errors_pb2.NOT_LEADER_OR_FOLLOWER
        if hosted.leads:
            code = check_leader_epoch(position.leader_epoch, hosted.replica.leader_epoch)
        if code != errors_pb2.NONE:
            self._refuse(hosted.tip, hosted, code)
            self._wake()

    # -- responses -------------------------------------------------------------------------------

    def due_in_s(self) -> float | None:
        """Return the seconds until a response is due, or may be; None before the first request.

        While no response is wanted, it is as long as a long poll takes: a request that comes
        meanwhile and cannot be answered yet need not wake anybody, because it ends later than that.
        """
        if not self.wants_data:
            return self.max_wait_ms / 1000 or None
        if self.has_news:
            return 0.0
        left_ms = self.asked_at_ms + self.max_wait_ms - self._table.clock.now_ms()
        return min(left_ms, self.throttled_ms or left_ms) / 1000

    def take_response(self) -> list[FetchedPartition]:
        """Return the one response that is due: errors, data up to a size, then high watermarks."""
        self.wants_data = self._start_moved = False
        response, self._refusals = self._refusals, []
        room = self._max_bytes
        throttle = self._table.throttles.leader
        is_limited = throttle.is_limited
        for position in self._ready.all():
            if room <= 0:
                break
            self._ready.take(position)
            throttled = is_limited and self._is_throttled(position.hosted)
            if throttled and self._must_wait():
                self._ready.hold(position)
                continue
            size_max = min(room, throttle.at_once_bytes) if throttled else room
            size = self._take_data(position, size_max, response)
            room -= size
            if throttled:
                throttle.take(size, self._table.clock.now_ms())
        if self._watermarks:
            for tip in tuple(self._watermarks)[:HIGH_WATERMARKS_PER_FRAME_MAX]:
                response.append(_news(self._watermarks.pop(tip)))
        return response

    def _must_wait(self) -> bool:
        return self._table.throttles.leader.wait_ms(self._table.clock.now_ms()) > 0

    def _take_data(
        self, position: FollowerPosition, room: int, response: list[FetchedPartition]
    ) -> int:
        """Add what the follower wants next, and return its size."""
        hosted = position.hosted
        try:
            read = hosted.log.read(
                position.fetch_offset, room, hosted.log.flushed_offset, wait=position.is_loaded
            )
        except ColdRead as cold:
            self._ready.load(position, cold)
            return 0
        except KafkaError as error:
            log.warning("cannot read %s for a follower: %s", hosted.tp, error)
            self._refuse(hosted.tip, hosted, error.code)
            return 0
        if not read.size:
            return 0
        self._table.traffic.replicated_out(read.size)
        position.note_sent()
        response.append(_news(position, read.size, read.chunks))
        self._watermarks.pop(hosted.tip, None)
        return read.size


def _news(
    position: FollowerPosition, size: int = 0, records: Sequence[Bytes] = ()
) -> FetchedPartition:
    hosted = position.hosted
    return FetchedPartition(
        hosted.tip,
        errors_pb2.NONE,
        hosted.replica.high_watermark,
        hosted.log.log_start_offset,
        position.leader_epoch,
        size,
        records,
    )


def refuse_follower(
    table: PartitionTable, hosted: HostedPartition, leader_epoch: int, replica_id: BrokerId
) -> int:
    """Return the Kafka error code for a follower that asks in ``leader_epoch``.

    A newer epoch than the leader's own makes the leader step down (rule 6, C15).
    """
    replica = hosted.replica
    if hosted.leads and leader_epoch > replica.leader_epoch:
        table.run(hosted, replica.saw_newer_epoch(LeaderEpoch(leader_epoch)))
        return errors_pb2.UNKNOWN_LEADER_EPOCH
    if not hosted.leads:
        return errors_pb2.NOT_LEADER_OR_FOLLOWER
    if replica_id not in replica.replicas:
        return errors_pb2.REPLICA_NOT_AVAILABLE
    return check_leader_epoch(leader_epoch, replica.leader_epoch)
