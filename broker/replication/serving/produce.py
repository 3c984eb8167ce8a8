"""Produce: append at the leader, then wait for as much as ``acks`` asks (C12, scenario 14)."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import encode_marker
from quorate.broker.replication.api import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    MarkerEntry,
    ProduceEntry,
    ProduceOutcome,
    refused,
)
from quorate.broker.replication.hosting.hosted_partition import (
    DelayedProduce,
    HostedPartition,
    ProducePurgatory,
    not_leader,
)
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.serving.recompression_queue import RecompressionQueue
from quorate.broker.replication.serving.transaction_verification import (
    Release,
    TransactionBatch,
    TransactionVerification,
)
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_HELD: Final = ProduceOutcome()
"""The outcome of an entry that waits for recompression or verification."""


class RecordAppender:
    """Appends before its first await, so that requests of one connection keep their order.

    Exceptions are batches that need another codec (``recompression``), batches that would begin a
    transaction (``transaction_verification``), and whatever waits behind them.
    """

    def __init__(self, table: PartitionTable, verification: TransactionVerification | None) -> None:
        """Without ``verification``, transactions begin without a question to their coordinators."""
        self._table = table
        self._clock = table.clock
        self._recompression = RecompressionQueue()
        self._verification = verification

    async def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> list[ProduceOutcome]:
        """Append the entries and return one outcome for each, in order.

        With acks=0 an entry is answered once it is appended, with 1 once it is durable here, and
        with -1 once it is below the high watermark, so on every member of the maximal ISR.
        """
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            message = f"acks={acks}: must be -1, 0 or 1"
            return [ProduceOutcome(errors_pb2.INVALID_REQUIRED_ACKS, message) for _ in entries]
        pending = DelayedProduce()
        for entry in entries:
            self._append(entry, acks, pending)
        if acks == ACKS_NONE and pending.outcomes:
            with contextlib.suppress(KafkaError):
                await self._table.store.writer.wait_for_room()
        return await pending.wait(timeout_ms)

    async def close(self) -> None:
        """Refuse what waits for recompression or verification: another broker will lead."""
        await self._recompression.close()
        if self._verification is not None:
            await self._verification.close()

    async def verify_transaction(self, batch: TransactionBatch) -> None:
        """Verify a transaction right before a coordinator appends in the name of its producer.

        Raises:
            KafkaError: the coordinator may not append, see ``TransactionVerification.verify``.
        """
        hosted = self._table.named(batch.tp)
        if hosted is not None and self._verification is not None:
            await self._verification.verify(hosted, batch)

    async def write_markers(self, entries: Sequence[MarkerEntry], timeout_ms: int) -> list[int]:
        """End transactions in partitions led here, and return an error code per entry, in order.

        NONE means that the marker is committed. A coordinator that gets an error, or no answer,
        sends the marker again: a marker that ends nothing does no harm. INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED will stay; every other error passes.
        """
        timestamp_ms = self._clock.wall_clock_ms()
        epochs = [self._leader_epoch(entry.tp) for entry in entries]
        batches = {
            marker: encode_marker(marker, timestamp_ms)
            for marker in {entry.marker for entry in entries}
        }
        produced = [
            ProduceEntry(entry.tp, batches[entry.marker], AppendOrigin.MARKERS) for entry in entries
        ]
        outcomes = await self.produce(produced, ACKS_ALL, timeout_ms)
        for entry, epoch, outcome in zip(entries, epochs, outcomes, strict=True):
            if outcome.error_code == errors_pb2.NONE:
                self._tell_of_end(entry, epoch, outcome.base_offset)
        return [outcome.error_code for outcome in outcomes]

    def _leader_epoch(self, tp: TopicPartition) -> LeaderEpoch | None:
        hosted = self._table.named(tp)
        return None if hosted is None else hosted.led_epoch

    def _tell_of_end(self, entry: MarkerEntry, epoch: LeaderEpoch | None, offset: int) -> None:
        """Tell the partition's listener, unless the leadership has changed since the append.

        A listener that leads in another epoch has found the marker in the log.
        """
        hosted = self._table.named(entry.tp)
        if hosted is not None and hosted.led_epoch == epoch:
            hosted.transaction_ended(entry.marker, offset)

    def _append(self, entry: ProduceEntry, acks: int, pending: DelayedProduce) -> None:
        """Append an entry, or hold it, and add its outcome to ``pending``."""
        hosted = self._table.named(entry.tp)
        if hosted is not None and hosted.leads and self._is_held(hosted, entry, acks, pending):
            return
        outcome, waiters, needed = self._appended(hosted, entry, acks)
        pending.outcomes.append(outcome)
        if waiters is not None:
            waiters.add(needed, pending, pending.expect())

    def _is_held(
        self, hosted: HostedPartition, entry: ProduceEntry, acks: int, pending: DelayedProduce
    ) -> bool:
        """Have the entry wait for another codec or for the answer of a coordinator, if it must.

        Returns whether it waits. Most topics keep the producers' codecs, and most batches begin no
        transaction: neither waits.
        """
        recompression = self._recompression
        may_wait = hosted.log.storing.codec is not None or recompression.queues
        if may_wait and recompression.is_needed(hosted, entry):
            pending.outcomes.append(_HELD)
            go_on = partial(self._go_on, acks, pending, pending.expect())
            recompression.hold(hosted, entry, go_on)
            return True
        asked = self._question(hosted, entry)
        if asked is None:
            return False
        pending.outcomes.append(_HELD)
        asked(partial(self._release, entry, acks, pending, pending.expect()))
        return True

    def _question(
        self, hosted: HostedPartition, entry: ProduceEntry
    ) -> Callable[[Release], None] | None:
        """Return a function that asks a coordinator and goes on then, or None if none is asked."""
        if self._verification is None or entry.transactional_id is None:
            return None
        batch = self._verification.needed(hosted, entry)
        return None if batch is None else partial(self._verification.hold, hosted, batch)

    def _go_on(
        self,
        acks: int,
        pending: DelayedProduce,
        position: int,
        entry: ProduceEntry,
        refusal: KafkaError | None,
    ) -> None:
        """Go on with an entry that has the codec of its topic by now, or that was refused."""
        hosted = self._table.named(entry.tp)
        release = partial(self._release, entry, acks, pending, position)
        if refusal is None and hosted is not None and hosted.leads and pending.is_open(position):
            asked = self._question(hosted, entry)
            if asked is not None:
                asked(release)
                return
        release(refusal)

    def _release(
        self,
        entry: ProduceEntry,
        acks: int,
        pending: DelayedProduce,
        position: int,
        refusal: KafkaError | None,
    ) -> None:
        """Append an entry that was held, or answer it with the refusal."""
        if not pending.is_open(position):
            return  # The request has timed out: the producer sends it again.
        if refusal is not None:
            pending.settle(position, refusal.code, refusal.message)
            return
        outcome, waiters, needed = self._appended(self._table.named(entry.tp), entry, acks)
        pending.outcomes[position] = outcome
        if waiters is not None:
            waiters.add(needed, pending, position)
        else:
            pending.settle(position, errors_pb2.NONE, None)

    def _appended(
        self, hosted: HostedPartition | None, entry: ProduceEntry, acks: int
    ) -> tuple[ProduceOutcome, ProducePurgatory | None, int]:
        """Append an entry. Return its outcome, and where to wait for which offset first."""
        if hosted is None or not hosted.leads:
            return ProduceOutcome(*not_leader(entry.tp, hosted)), None, 0
        replica = hosted.replica
        if acks == ACKS_ALL and not replica.has_enough_replicas:
            message = (
                f"the ISR of {entry.tp} is {list(replica.isr.committed)}, below "
                f"min.insync.replicas={replica.min_insync_replicas}"
            )
            hosted.traffic.refused_a_produce()
            return ProduceOutcome(errors_pb2.NOT_ENOUGH_REPLICAS, message), None, 0
        end_before = hosted.log.log_end_offset
        try:
            appended = hosted.log.append_as_leader(
                entry.records, replica.leader_epoch, entry.origin, self._clock.wall_clock_ms()
            )
        except KafkaError as error:
            hosted.traffic.refused_a_produce()
            return refused(error), None, 0
        outcome = ProduceOutcome(
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=hosted.log.log_start_offset,
        )
        needed = appended.last_offset + 1
        # Records that were sent again do not count: a part of them may be in the log already.
        hosted.traffic.took(len(entry.records), hosted.log.log_end_offset - end_before)
        if acks == ACKS_ALL and replica.high_watermark < needed:
            return outcome, hosted.waiting_for_commit, needed
        if acks == ACKS_LEADER and hosted.log.flushed_offset < needed:
            return outcome, hosted.waiting_for_flush, needed
        return outcome, None, 0
