"""Ends decided transactions: writes a marker into each of their partitions, at the partition's
leader.

The decision is in the coordinator's log and is never withdrawn, so the sender does not give up. A
partition without a leader, or with too few replicas, is tried until it accepts the marker. There
are two exceptions. A partition that the quorum no longer knows needs no marker. And a partition
that has seen a newer coordinator, or a newer epoch of the producer, must be ended by another
coordinator.

A marker may be written twice, when an answer was lost: the second one finds no transaction. A
marker that is delayed until the producer's next transaction has begun would end that transaction;
such requests are refused by their receiver (``transactions_service``).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.coordinator.shards.shared_requests import RequestsByBroker
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.common.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_BACKOFF_MS: Final = (20, 40, 80, 160, 320, 500)
"""The pauses between attempts; the last one repeats. It is about the time that a leader election
takes."""
_COMPLAIN_EVERY_MS: Final = 30_000
"""The interval between warnings about failed attempts, per partition."""

ENDED_BY_ANOTHER_COORDINATOR: Final = frozenset(
    {errors_pb2.INVALID_PRODUCER_EPOCH, errors_pb2.TRANSACTION_COORDINATOR_FENCED}
)
"""The errors after which another coordinator has to end the transaction, as in Kafka."""


class MarkerWrite(NamedTuple):
    """One marker for one partition, addressed to its leader of ``leader_epoch``."""

    tp: TopicPartition
    leader_epoch: LeaderEpoch
    marker: EndMarker
    transaction_version: int = 0


class PartitionLeadership(NamedTuple):
    """The leader of a partition; ``leader`` is NO_BROKER while there is none."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


class PartitionLeaders(Protocol):
    """Finds the leaders of partitions; ``transaction_peers.WatchedLeaders`` and the simulator
    implement it."""

    def leadership(self, tp: TopicPartition) -> PartitionLeadership | None:
        """Return the leader of a partition, or None if this broker does not know the partition."""

    async def is_gone(self, tp: TopicPartition) -> bool:
        """Return whether the quorum no longer knows the partition; False if the quorum cannot be
        asked."""


WriteMarkers = Callable[[BrokerId, Sequence[MarkerWrite]], Awaitable[Sequence[int]]]
"""Asks a broker to write markers, and returns an error code for each; it does not raise for a
failed broker."""


class MarkerSender:
    """Sends the transaction markers of one broker. All methods run on the event loop."""

    def __init__(self, leaders: PartitionLeaders, write: WriteMarkers) -> None:
        self._leaders = leaders
        self._write = write
        self._requests: RequestsByBroker[MarkerWrite, int] = RequestsByBroker(
            self._write, errors_pb2.UNKNOWN_SERVER_ERROR
        )
        self.pending = 0
        """The number of markers that are not written yet."""
        self.written = 0

    async def send(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        partitions: Iterable[TopicPartition],
        transaction_version: int = 0,
    ) -> frozenset[TopicPartition]:
        """Return once a marker has ended the transaction in all of ``partitions``, however long it
        takes.

        ``transaction_version`` is 2 if ``producer_epoch`` begins after the transaction.

        A deleted partition needs no marker. If the call is cancelled, it stops trying; markers that
        were already sent may still be written.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED: a partition has
                seen a newer epoch of the producer, or a newer coordinator.
        """
        marker = EndMarker(producer_id, producer_epoch, committed, coordinator_epoch)
        wanted = frozenset(partitions)
        if len(wanted) == 1:
            (only,) = wanted
            await self._end_in(transactional_id, only, marker, transaction_version)
            return wanted
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._end_in(transactional_id, tp, marker, transaction_version))
            for tp in wanted
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return wanted

    def close(self) -> None:
        """Cancel all waiting calls."""
        self._requests.close()

    async def _end_in(
        self, transactional_id: str, tp: TopicPartition, marker: EndMarker, version: int
    ) -> None:
        self.pending += 1
        try:
            await self._try_until_ended(transactional_id, tp, marker, version)
        finally:
            self.pending -= 1

    async def _try_until_ended(
        self, transactional_id: str, tp: TopicPartition, marker: EndMarker, version: int
    ) -> None:
        loop = asyncio.get_running_loop()
        attempts = 0
        complained_at_s = loop.time()
        while True:
            known = self._leaders.leadership(tp)
            if known is None and await self._leaders.is_gone(tp):
                _log.info("transaction %r ends without %s: it is gone", transactional_id, tp)
                return
            code = await self._attempt(tp, known, marker, version)
            if code == errors_pb2.NONE:
                self.written += 1
                return
            if code in ENDED_BY_ANOTHER_COORDINATOR:
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
        self,
        tp: TopicPartition,
        known: PartitionLeadership | None,
        marker: EndMarker,
        version: int,
    ) -> int:
        if known is None:
            return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        if known.leader == NO_BROKER:
            return errors_pb2.LEADER_NOT_AVAILABLE
        return await self._requests.add(
            known.leader, MarkerWrite(tp, known.leader_epoch, marker, version)
        )
