"""The follower's side of one stream: what its leader is told, and what becomes of its answers.

Its counterpart on the leader's side is ``serving.replica_fetch_session``. Requests are made and
responses taken in here, and a ``FetchStream`` carries them. A partition that fails waits alone;
the others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.replication.fetching.partition_fetch_state import PartitionFetchState
from quorate.broker.replication.fetching.truncator import Truncator
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.streams.fetch_messages import (
    FetchedPartition,
    ReplicaFetchRequest,
    ReplicaPosition,
)
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import BrokerEpoch, BrokerId, TopicIdPartition
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

ASK_WITH_ACK_MAX_S = 0.02
"""The longest wait of a fetch for the last batches to be durable, so that one frame tells both."""

EXPECTED_ERRORS = frozenset(
    {
        errors_pb2.FENCED_LEADER_EPOCH,
        errors_pb2.UNKNOWN_LEADER_EPOCH,
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors in any change of leaders: one of the two brokers was told before the other."""


class FetchSessionHandler:
    """Every partition that this broker follows at one leader, over one stream after another."""

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
        """``wake`` is called when there may be a request to send.

        ``max_wait_ms`` and ``max_bytes`` limit one answer. Logs are compared while ``may_ask`` is
        set.
        """
        self.leader = leader
        self.truncator = Truncator(table, self._on_checked, may_ask)
        self.asked_at_ms: int | None = None
        """The time since which the leader owes an answer, or None if it owes none."""
        self._table = table
        self._wake = wake
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._states: dict[TopicIdPartition, PartitionFetchState] = {}
        self._stream_epoch = BrokerEpoch(-1)
        self._fetching = 0
        self._changed: dict[TopicIdPartition, PartitionFetchState] = {}
        self._forgotten: list[TopicIdPartition] = []
        self._wants_data = True
        self._resumption: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._moving = BackgroundTasks()
        """The logs that are about to begin later."""

    async def close(self) -> None:
        """Send nothing more, and wait for the logs that are about to begin later."""
        for timer in (self._resumption, self._asking):
            if timer is not None:
                timer.cancel()
        await self._moving.ended()

    # -- partitions ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nothing is followed at this leader any more."""
        return not self._states

    def state_of(self, hosted: HostedPartition) -> PartitionFetchState | None:
        """Return where the fetching of a partition stands, or None if it is not fetched here."""
        return self._states.get(hosted.tip)

    def add(self, state: PartitionFetchState) -> None:
        """Fetch one more partition, after the check of its log."""
        self._states[state.tip] = state
        self.truncator.add(state)

    def remove(self, hosted: HostedPartition) -> None:
        """Append nothing more of this partition."""
        state = self._states.pop(hosted.tip, None)
        if state is None:
            return
        state.stop()
        self.truncator.discard(state)
        self._changed.pop(state.tip, None)
        if state.is_fetching:
            self._forget(state)

    def position_changed(self, state: PartitionFetchState) -> None:
        """Tell the leader with the next frame that a log grew or became durable."""
        if not state.is_held:
            self._changed[state.tip] = state
            self._wake()

    def on_flushed(self, hosted: HostedPartition) -> None:
        """Tell the leader that more of the local log is durable."""
        state = self._states.get(hosted.tip)
        if state is not None and state.is_fetching:
            self.position_changed(state)
            self.follow_log_start(state)

    def is_starting_over(self, hosted: HostedPartition) -> bool:
        """Say whether the local log is dropped and fetched again from the leader's log start."""
        state = self._states.get(hosted.tip)
        return state is not None and state.start_over

    def tell_positions(self) -> None:
        """Tell the leader again how far every log reaches."""
        for state in self._states.values():
            if state.is_fetching:
                self.position_changed(state)

    def _on_checked(self, state: PartitionFetchState) -> None:
        self._fetching += 1
        self.position_changed(state)
        self._hold_back([state])

    def _forget(self, state: PartitionFetchState) -> None:
        """Have the leader forget the position, if it has it."""
        if state.is_held:
            state.release()
            return
        self._fetching -= 1
        self._forgotten.append(state.tip)
        self._wake()

    def _back_off(self, state: PartitionFetchState) -> None:
        """Start this partition alone again from its check, later."""
        if state.is_fetching:
            self._forget(state)
        self._changed.pop(state.tip, None)
        state.back_off(self._table.clock.now_ms())
        self.truncator.add(state)

    # -- the throttle ----------------------------------------------------------------------------

    def _took_in(self, throttled_bytes: int) -> None:
        """Count what an answer brought of throttled replicas: they may have to wait now."""
        if throttled_bytes:
            self._table.throttles.follower.take(throttled_bytes, self._table.clock.now_ms())
            self._hold_back(self._states.values())

    def _hold_back(self, states: Iterable[PartitionFetchState]) -> None:
        """Have those of ``states`` that are throttled wait while too much has come in already.

        The leader forgets their positions, so at most the answer under way comes in too much.
        """
        wait_ms = self._table.throttles.follower.wait_ms(self._table.clock.now_ms())
        if not wait_ms:
            return
        for state in states:
            fetches = state.is_fetching and not state.is_held
            if fetches and self._is_throttled(state):
                self._forget(state)
                self._changed.pop(state.tip, None)
                state.hold()
        if self._resumption is None:
            self._resume_in(wait_ms)

    def _is_throttled(self, state: PartitionFetchState) -> bool:
        """Say whether the throttle applies. It never does to a partition that is in sync."""
        covered = self._table.throttles.follower.covers(state.hosted.tp)
        return covered and not state.is_in_sync

    def _resume_in(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._resumption = loop.call_later(wait_ms / 1000, self._resume)

    def _resume(self) -> None:
        """Go on with what was held back, unless it is still too early."""
        self._resumption = None
        wait_ms = self._table.throttles.follower.wait_ms(self._table.clock.now_ms())
        if wait_ms:
            self._resume_in(wait_ms)
            return
        for state in self._states.values():
            if state.is_held:
                state.release()
                self._on_checked(state)

    # -- requests --------------------------------------------------------------------------------

    def start_afresh(self, broker_epoch: BrokerEpoch) -> None:
        """Begin a new stream: it knows no position, and every log is compared again."""
        self._stream_epoch = broker_epoch
        self._changed.clear()
        self._forgotten.clear()
        self._fetching = 0
        self._wants_data = True
        self.asked_at_ms = None
        for state in self._states.values():
            state.check_again()
            self.truncator.add(state)

    def next_request(self) -> ReplicaFetchRequest | None:
        """Return everything new in one request, which asks for data unless an answer is to come.

        None if there is nothing to tell.
        """
        wants_data = self._wants_data and self._fetching > 0
        if not (wants_data or self._changed or self._forgotten):
            return None
        positions = [ReplicaPosition(tip, forget=True) for tip in self._forgotten]
        is_full = self._table.store.is_any_full
        positions += [
            state.position(can_append=not (is_full and state.hosted.log.is_full))
            for state in self._changed.values()
        ]
        self._forgotten.clear()
        self._changed.clear()
        now_ms = self._table.clock.now_ms()
        if wants_data:
            if self._asking is not None:
                self._asking.cancel()
            self._wants_data = False
            self.asked_at_ms = now_ms
        if self.asked_at_ms is not None:
            self._table.silence.ask_leader(self.leader, now_ms)
        return ReplicaFetchRequest(
            self._table.broker_id,
            self._stream_epoch,
            self._table.fetch_wait_ms(self._max_wait_ms),
            self._max_bytes,
            not wants_data,
            positions,
        )

    def ask_for_more(self, received_bytes: int) -> None:
        """Ask for data again after an answer of so many bytes.

        If there is much more to come, ask at once: the leader sends while this broker writes. Else
        ask together with the acknowledgement of what came: that is as fast as the own disk, and it
        saves half the requests.
        """
        self._wants_data = True
        if self._changed and received_bytes < self._max_bytes // 2:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(ASK_WITH_ACK_MAX_S, self._wake)
        else:
            self._wake()

    # -- answers ---------------------------------------------------------------------------------

    def on_response(self, partitions: Sequence[FetchedPartition]) -> None:
        """Take in an answer."""
        self.asked_at_ms = None
        self._table.silence.hear_leader(self.leader)
        size = throttled_bytes = 0
        is_limited = self._table.throttles.follower.is_limited
        for fetched in partitions:
            size += fetched.size
            state = self._states.get(fetched.tip)
            if state is None or not state.is_fetching:
                continue
            if fetched.error_code != errors_pb2.NONE:
                self._on_error(state, fetched)
            elif fetched.leader_epoch == state.leader_epoch:
                state.note_leader(fetched.high_watermark, fetched.log_start_offset)
                if is_limited and fetched.size and self._is_throttled(state):
                    throttled_bytes += fetched.size
                self._append(state, fetched)
        self._table.traffic.replicated_in(size)
        self._took_in(throttled_bytes)

    def _append(self, state: PartitionFetchState, fetched: FetchedPartition) -> None:
        hosted = state.hosted
        if fetched.size:
            try:
                hosted.log.append_as_follower(fetched.records[0])
            except BrokenInvariant as broken:
                self._table.give_up(hosted, broken)
                return
            except Exception as error:  # One partition's fault stops no other (KIP-461).
                unforeseen = not isinstance(error, KafkaError)
                # A full disk refuses all partitions again and again. The store has logged it once.
                level = logging.DEBUG if hosted.log.is_full else logging.ERROR
                log.log(level, "cannot append to %s: %s", hosted.tp, error, exc_info=unforeseen)
                self._back_off(state)
                self.follow_log_start(state)  # What the leader deleted makes room here, too.
                return
            if not state.is_held:
                self._changed[state.tip] = state
        state.note_success()
        hosted.follow_high_watermark(fetched.high_watermark)
        if not self._table.is_sound(hosted):
            return
        hosted.log.settle_transactions(hosted.replica.high_watermark)
        self.follow_log_start(state)

    def follow_log_start(self, state: PartitionFetchState) -> None:
        """Begin where the leader's log begins, as far as that is durable here, then tell it."""
        partition_log = state.hosted.log
        start = min(state.leader_log_start, partition_log.flushed_offset)
        if start > partition_log.log_start_offset:
            self._moving.start(self._start_at(state, start))

    async def _start_at(self, state: PartitionFetchState, offset: int) -> None:
        hosted = state.hosted
        try:
            await hosted.log.start_at(offset)
        except KafkaError as error:
            log.warning("%s cannot begin at %d: %s", hosted.tp, offset, error)
            return
        hosted.wake_fetches()
        if state.is_fetching and self._states.get(state.tip) is state:
            self.position_changed(state)

    def _on_error(self, state: PartitionFetchState, fetched: FetchedPartition) -> None:
        hosted = state.hosted
        if fetched.error_code == errors_pb2.OFFSET_OUT_OF_RANGE and (
            state.start_over
            or hosted.log.log_end_offset < fetched.log_start_offset
            or hosted.log.log_end_offset == hosted.log.log_start_offset
        ):
            # A log without records: after an unclean election the leader's may end before it.
            state.restart(fetched.log_start_offset)
        log.log(
            logging.DEBUG if fetched.error_code in EXPECTED_ERRORS else logging.WARNING,
            "broker %d answers %s for %s at offset %d in epoch %d",
            self.leader,
            error_name(fetched.error_code),
            hosted.tp,
            state.fetch_offset,
            state.leader_epoch,
        )
        self._back_off(state)
