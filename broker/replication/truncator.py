"""Compares local logs with the leader's by leader-epoch history, and cuts what the leader lacks.

Every partition passes here before it is fetched: in a new leader epoch, on a new stream, and
after a failure (KIP-101, KIP-279). Many partitions share one question.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from broker.errors import KafkaError, error_name
from broker.replication.following import Following, Phase
from broker.replication.partition.truncation import plan_truncation
from broker.replication.waiters import Wakeup
from metadata_log.types import BrokerId, LeaderEpoch, TopicIdPartition
from quorate_proto.v1 import errors_pb2, replication_pb2

log = logging.getLogger(__name__)

QUERIES_PER_CALL_MAX = 2_000


class EpochQuestions(Protocol):
    """``Replication.OffsetsForLeaderEpoch`` of the leader."""

    def __call__(
        self, request: replication_pb2.OffsetsForLeaderEpochRequest, /
    ) -> Awaitable[replication_pb2.OffsetsForLeaderEpochResponse]: ...


class Truncator:
    """Partitions waiting for their check; ``ready`` is called for each that may be fetched."""

    def __init__(
        self,
        broker_id: BrokerId,
        now_ms: Callable[[], int],
        ready: Callable[[Following], None],
        may_ask: asyncio.Event,
    ) -> None:
        self._may_ask = may_ask
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._ready = ready
        self._waiting: dict[TopicIdPartition, Following] = {}
        self._wakeup = Wakeup()

    def add(self, following: Following) -> None:
        self._waiting[following.tip] = following
        self._wakeup.wake()

    def discard(self, following: Following) -> None:
        if self._waiting.get(following.tip) is following:
            del self._waiting[following.tip]

    async def run(self, ask: EpochQuestions) -> None:
        """Check what is due, until cancelled or until the leader cannot be asked."""
        while True:
            await self._may_ask.wait()
            now_ms = self._now_ms()
            due = [each for each in self._waiting.values() if each.retry_at_ms <= now_ms]
            if due:
                await self._check(due[:QUERIES_PER_CALL_MAX], ask)
            else:
                first_ms = min((e.retry_at_ms for e in self._waiting.values()), default=None)
                await self._wakeup.wait(None if first_ms is None else (first_ms - now_ms) / 1000)

    async def _check(self, due: Sequence[Following], ask: EpochQuestions) -> None:
        questions = []
        for following in due:
            if following.restart_at is not None:
                await self._alone(following, self._restart(following, following.restart_at))
            elif _is_empty(following) or following.start_over:
                self._done(following)
            else:
                questions.append(following)
        if questions:
            response = await ask(self._request(questions))
            for following, answer in zip(questions, response.answers, strict=True):
                await self._alone(following, self._on_answer(following, answer))

    async def _alone(self, following: Following, step: Awaitable[None]) -> None:
        """Whatever is wrong with one partition, the others go on (KIP-461)."""
        try:
            await step
        except Exception:
            log.exception("preparing %s to be fetched failed", following.hosted.tp)
            following.back_off(self._now_ms())

    def _request(
        self, questions: Iterable[Following]
    ) -> replication_pb2.OffsetsForLeaderEpochRequest:
        request = replication_pb2.OffsetsForLeaderEpochRequest(replica_id=self._broker_id)
        for following in questions:
            request.queries.add(
                topic_id=following.tip.topic_id,
                partition=following.tip.partition,
                current_leader_epoch=following.leader_epoch,
                leader_epoch=following.hosted.log.leader_epochs.latest_epoch,
            )
        return request

    async def _on_answer(self, following: Following, answer: replication_pb2.EpochAnswer) -> None:
        if answer.error_code != errors_pb2.NONE:
            log.debug(
                "leader answers %s for %s, epoch %d",
                error_name(answer.error_code),
                following.hosted.tp,
                following.leader_epoch,
            )
            following.back_off(self._now_ms())
            return
        partition_log = following.hosted.log
        history = partition_log.leader_epochs
        plan = plan_truncation(
            (answer.leader_epoch, answer.end_offset),
            partition_log.log_end_offset,
            lambda epoch: history.end_offset_for(LeaderEpoch(epoch), partition_log.log_end_offset),
        )
        if plan.offset is None:
            following.start_over = True
            self._done(following)
        elif await self._cut(following, plan.offset) and plan.done:
            self._done(following)

    async def _cut(self, following: Following, offset: int) -> bool:
        """Whether the log now ends at or before ``offset``, and is still followed."""
        hosted = following.hosted
        async with hosted.truncation:
            if hosted.following is not following:
                return False
            if offset >= hosted.log.log_end_offset:
                # Epochs in which this broker led without a record are not in the leader's history:
                # remembered, they would be asked about again, without an end.
                hosted.log.leader_epochs.truncate_from_end(offset)
                return True
            if offset < hosted.replica.high_watermark:
                log.warning(
                    "%s is cut at %d, below its high watermark %d: the leader of epoch %d "
                    "does not have what this replica knew to be committed",
                    hosted.tp,
                    offset,
                    hosted.replica.high_watermark,
                    following.leader_epoch,
                )
            before = hosted.log.log_end_offset
            try:
                await hosted.log.truncate_to(max(offset, hosted.log.log_start_offset))
            except KafkaError as error:
                return self._failed(following, error)
            log.info("cut %s from %d to %d", hosted.tp, before, hosted.log.log_end_offset)
            hosted.replica.local_truncated(hosted.log.log_end_offset, hosted.log.flushed_offset)
            return hosted.following is following

    async def _restart(self, following: Following, offset: int) -> None:
        hosted = following.hosted
        async with hosted.truncation:
            if hosted.following is not following:
                return
            log.info("%s starts over at %d, its leader's log start", hosted.tp, offset)
            try:
                await hosted.log.truncate_fully_and_start_at(offset)
            except KafkaError as error:
                self._failed(following, error)
                return
            hosted.replica.local_truncated(offset, hosted.log.flushed_offset)
            hosted.damaged_at = None
        following.restart_at = None
        following.start_over = False
        if hosted.following is following:
            self._done(following)

    def _failed(self, following: Following, error: KafkaError) -> bool:
        # A full disk refuses it again and again: the store has said so once.
        level = logging.ERROR if following.session.can_append else logging.DEBUG
        log.log(level, "cannot cut %s: %s", following.hosted.tp, error)
        following.back_off(self._now_ms())
        return False

    def _done(self, following: Following) -> None:
        self.discard(following)
        if following.hosted.following is following:
            following.phase = Phase.FETCHING
            self._ready(following)


def _is_empty(following: Following) -> bool:
    partition_log = following.hosted.log
    return partition_log.log_end_offset == partition_log.log_start_offset
