"""Compares local logs with the leader's by leader-epoch history, and truncates what it lacks.

Every partition passes here before it is fetched: in a new leader epoch, on a new stream, and
after a failure (KIP-101, KIP-279). Many partitions share one question.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.replication.fetching.partition_fetch_state import PartitionFetchState
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.partition.truncation import plan_truncation
from quorate.broker.replication.wakeup import Wakeup
from quorate.common.types import LeaderEpoch, TopicIdPartition
from quorate_proto.v1 import errors_pb2, replication_pb2

log = logging.getLogger(__name__)

QUERIES_PER_CALL_MAX = 2_000


class EpochQuestions(Protocol):
    """The gRPC method ``Replication.OffsetsForLeaderEpoch`` of the leader."""

    def __call__(
        self, request: replication_pb2.OffsetsForLeaderEpochRequest, /
    ) -> Awaitable[replication_pb2.OffsetsForLeaderEpochResponse]: ...


class Truncator:
    """The partitions that wait for their check; ``ready`` is called for each that passed it."""

    def __init__(
        self,
        table: PartitionTable,
        ready: Callable[[PartitionFetchState], None],
        may_ask: asyncio.Event,
    ) -> None:
        self._may_ask = may_ask
        self._table = table
        self._ready = ready
        self._waiting: dict[TopicIdPartition, PartitionFetchState] = {}
        self._wakeup = Wakeup()

    def add(self, state: PartitionFetchState) -> None:
        """Check the log of a partition."""
        self._waiting[state.tip] = state
        self._wakeup.wake()

    def discard(self, state: PartitionFetchState) -> None:
        """Check the log of this partition no more."""
        if self._waiting.get(state.tip) is state:
            del self._waiting[state.tip]

    async def run(self, ask: EpochQuestions) -> None:
        """Check what is due, until cancelled or until the leader cannot be asked."""
        while True:
            await self._may_ask.wait()
            now_ms = self._table.clock.now_ms()
            due = [each for each in self._waiting.values() if each.retry_at_ms <= now_ms]
            if due:
                await self._check(due[:QUERIES_PER_CALL_MAX], ask)
            else:
                first_ms = min((e.retry_at_ms for e in self._waiting.values()), default=None)
                await self._wakeup.wait(None if first_ms is None else (first_ms - now_ms) / 1000)

    async def _check(self, due: Sequence[PartitionFetchState], ask: EpochQuestions) -> None:
        questions = []
        for state in due:
            if state.restart_at is not None:
                await self._alone(state, self._restart(state, state.restart_at))
            elif _is_empty(state) or state.start_over:
                self._done(state)
            else:
                questions.append(state)
        if questions:
            response = await ask(self._request(questions))
            for state, answer in zip(questions, response.answers, strict=True):
                await self._alone(state, self._on_answer(state, answer))

    async def _alone(self, state: PartitionFetchState, step: Awaitable[None]) -> None:
        """Go on with the other partitions, whatever is wrong with this one (KIP-461)."""
        try:
            await step
        except Exception:
            log.exception("preparing %s to be fetched failed", state.hosted.tp)
            state.back_off(self._table.clock.now_ms())

    def _request(
        self, questions: Iterable[PartitionFetchState]
    ) -> replication_pb2.OffsetsForLeaderEpochRequest:
        request = replication_pb2.OffsetsForLeaderEpochRequest(replica_id=self._table.broker_id)
        for state in questions:
            request.queries.add(
                topic_id=state.tip.topic_id,
                partition=state.tip.partition,
                current_leader_epoch=state.leader_epoch,
                leader_epoch=state.hosted.log.leader_epochs.latest_epoch,
            )
        return request

    async def _on_answer(
        self, state: PartitionFetchState, answer: replication_pb2.EpochAnswer
    ) -> None:
        if answer.error_code != errors_pb2.NONE:
            log.debug(
                "leader answers %s for %s, epoch %d",
                error_name(answer.error_code),
                state.hosted.tp,
                state.leader_epoch,
            )
            state.back_off(self._table.clock.now_ms())
            return
        partition_log = state.hosted.log
        history = partition_log.leader_epochs
        plan = plan_truncation(
            (answer.leader_epoch, answer.end_offset),
            partition_log.log_end_offset,
            lambda epoch: history.end_offset_for(LeaderEpoch(epoch), partition_log.log_end_offset),
        )
        if plan.offset is None:
            state.begin_over()
            self._done(state)
        elif await self._cut(state, plan.offset) and plan.done:
            self._done(state)

    async def _cut(self, state: PartitionFetchState, offset: int) -> bool:
        """Truncate to ``offset``. Return whether the log ends there and is still followed."""
        hosted = state.hosted
        async with hosted.truncation:
            if state.is_stopped:
                return False
            if offset >= hosted.log.log_end_offset:
                # Epochs in which this broker led without a record are not in the leader's history.
                # If they were kept, the leader would be asked about them again without an end.
                hosted.log.leader_epochs.truncate_from_end(offset)
                return True
            if offset < hosted.replica.high_watermark:
                log.warning(
                    "%s is cut at %d, below its high watermark %d: the leader of epoch %d "
                    "does not have what this replica knew to be committed",
                    hosted.tp,
                    offset,
                    hosted.replica.high_watermark,
                    state.leader_epoch,
                )
            before = hosted.log.log_end_offset
            try:
                await hosted.log.truncate_to(max(offset, hosted.log.log_start_offset))
            except KafkaError as error:
                return self._failed(state, error)
            log.info("cut %s from %d to %d", hosted.tp, before, hosted.log.log_end_offset)
            hosted.replica.local_truncated(hosted.log.log_end_offset, hosted.log.flushed_offset)
            self._lower_checkpoint(hosted)
            return not state.is_stopped

    async def _restart(self, state: PartitionFetchState, offset: int) -> None:
        hosted = state.hosted
        async with hosted.truncation:
            if state.is_stopped:
                return
            log.info("%s starts over at %d, its leader's log start", hosted.tp, offset)
            try:
                await hosted.log.truncate_fully_and_start_at(offset)
            except KafkaError as error:
                self._failed(state, error)
                return
            hosted.replica.local_restarted(offset)
            self._lower_checkpoint(hosted)
            hosted.forget_damage()
        state.note_restarted()
        if not state.is_stopped:
            self._done(state)

    def _lower_checkpoint(self, hosted: HostedPartition) -> None:
        """Have the checkpoint say no more than the log has. A start takes a log that ends below its
        checkpointed high watermark for lost (rule 8)."""
        if hosted.log.checkpointed_high_watermark > hosted.log.log_end_offset:
            self._table.store.checkpoint_high_watermarks(
                {hosted.tip: hosted.replica.high_watermark}
            )

    def _failed(self, state: PartitionFetchState, error: KafkaError) -> bool:
        # A full disk refuses it again and again. The store has logged it once.
        level = logging.DEBUG if state.hosted.log.is_full else logging.ERROR
        log.log(level, "cannot cut %s: %s", state.hosted.tp, error)
        state.back_off(self._table.clock.now_ms())
        return False

    def _done(self, state: PartitionFetchState) -> None:
        self.discard(state)
        if not state.is_stopped:
            state.begin_fetching()
            self._ready(state)


def _is_empty(state: PartitionFetchState) -> bool:
    partition_log = state.hosted.log
    return partition_log.log_end_offset == partition_log.log_start_offset
