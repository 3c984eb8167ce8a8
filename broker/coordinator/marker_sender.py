"""How decided transactions end: a marker into each of their partitions, wherever it is led.

What is decided is in the coordinator's log and will not be taken back, so there is nothing to give
up on: a partition without a leader, or with too few replicas, is tried until it takes the marker.
Two things end it otherwise. A partition that the quorum knows no more has nobody to tell. And one
that has heard of a newer coordinator, or a newer epoch of the producer, is no longer ours to end.

A marker may be written twice, when an answer was lost: the second finds no transaction. One that
was held up on its way, until the producer's next transaction had begun, would end that one; such
requests are refused where they arrive (``transactions_service``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.coordinator.shared_requests import SharedRequests
from broker.errors import KafkaError, error_name
from broker.log.control_batches import EndMarker
from metadata_log.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_BACKOFF_MS: Final = (20, 40, 80, 160, 320, 500)
"""Between attempts; the last one again and again: about as long as it takes to elect a leader."""
_COMPLAIN_EVERY_MS: Final = 30_000
"""Of attempts in vain, per partition."""

NOT_OURS: Final = frozenset(
    {errors_pb2.INVALID_PRODUCER_EPOCH, errors_pb2.TRANSACTION_COORDINATOR_FENCED}
)
"""Somebody else has this transaction to end; as Kafka's coordinator has it."""


class MarkerWrite(NamedTuple):
    """One marker for one partition, whose leader is believed to lead it in ``leader_epoch``."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    marker: EndMarker


class Leadership(NamedTuple):
    """``leader`` NO_BROKER: nobody leads it now."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


class PartitionLeaders(Protocol):
    """Who leads what; ``transaction_peers.WatchedLeaders``."""

    def leadership(self, tp: TopicPartition) -> Leadership | None:
        """None: this broker knows of no such partition."""

    async def is_gone(self, tp: TopicPartition) -> bool:
        """Whether the quorum, asked now, knows no such partition; if it cannot be asked, not."""


WriteMarkers = Callable[[BrokerId, Sequence[MarkerWrite]], Awaitable[Sequence[int]]]
"""Has a broker write markers; an error code for each. Never raises for the broker's sake."""


class MarkerSender:
    """Of one broker. On the event loop alone."""

    def __init__(self, leaders: PartitionLeaders, write: WriteMarkers) -> None:
        self._leaders = leaders
        self._write = write
        self._requests: dict[BrokerId, SharedRequests[MarkerWrite]] = {}
        self.pending = 0
        """Markers on their way."""
        self.written = 0

    async def send(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        producer_id: int,
        epoch: int,
        committed: bool,
        partitions: Iterable[TopicPartition],
    ) -> frozenset[TopicPartition]:
        """Return once the transaction is ended in all of ``partitions``, however long it takes.

        Cancelled, it stops trying; markers that are on their way may still be written.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED: a partition has
                heard of a newer epoch of the producer, or of a newer coordinator.
        """
        marker = EndMarker(producer_id, epoch, committed, coordinator_epoch)
        wanted = frozenset(partitions)
        if len(wanted) == 1:
            (only,) = wanted
            await self._end_in(transactional_id, only, marker)
            return wanted
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._end_in(transactional_id, tp, marker)) for tp in wanted]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return wanted

    def close(self) -> None:
        """Whoever waits is cancelled."""
        for requests in self._requests.values():
            requests.close()

    async def _end_in(self, transactional_id: str, tp: TopicPartition, marker: EndMarker) -> None:
        self.pending += 1
        try:
            await self._try_until_ended(transactional_id, tp, marker)
        finally:
            self.pending -= 1

    async def _try_until_ended(
        self, transactional_id: str, tp: TopicPartition, marker: EndMarker
    ) -> None:
        loop = asyncio.get_running_loop()
        attempts = 0
        complained_at_s = loop.time()
        while True:
            known = self._leaders.leadership(tp)
            if known is None and await self._leaders.is_gone(tp):
                _log.info("transaction %r ends without %s: it is gone", transactional_id, tp)
                return
            code = await self._attempt(tp, known, marker)
            if code == errors_pb2.NONE:
                self.written += 1
                return
            if code in NOT_OURS:
                raise KafkaError(
                    code,
                    f"{tp} takes no marker of coordinator epoch {marker.coordinator_epoch} for "
                    f"transaction {transactional_id!r} of producer {marker.producer_id}, epoch "
                    f"{marker.producer_epoch}: it has heard of a newer one",
                )
            now_s = loop.time()
            if (now_s - complained_at_s) * 1000 >= _COMPLAIN_EVERY_MS:
                complained_at_s = now_s
                _log.warning(
                    "transaction %r of producer %d cannot be ended in %s (%s, broker %d leads it), "
                    "after %d attempts; its records are not shown to read_committed consumers "
                    "until then",
                    transactional_id,
                    marker.producer_id,
                    tp,
                    error_name(code),
                    NO_BROKER if known is None else known.leader,
                    attempts + 1,
                )
            await asyncio.sleep(_BACKOFF_MS[min(attempts, len(_BACKOFF_MS) - 1)] / 1000)
            attempts += 1

    async def _attempt(
        self, tp: TopicPartition, known: Leadership | None, marker: EndMarker
    ) -> int:
        if known is None:
            return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        if known.leader == NO_BROKER:
            return errors_pb2.LEADER_NOT_AVAILABLE
        return await self._to(known.leader).add(MarkerWrite(tp, known.leader_epoch, marker))

    def _to(self, broker_id: BrokerId) -> SharedRequests[MarkerWrite]:
        requests = self._requests.get(broker_id)
        if requests is None:

            def ask(writes: Sequence[MarkerWrite]) -> Awaitable[Sequence[int]]:
                return self._write(broker_id, writes)

            requests = self._requests[broker_id] = SharedRequests(ask)
        return requests
