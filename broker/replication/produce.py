"""Producing: append at the leader, then wait for as much as ``acks`` asks (C12, scenario 14)."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.errors import KafkaError
from broker.log.admission import Origin
from broker.log.control_batches import encode_marker
from broker.replication.api import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    MarkerEntry,
    ProduceEntry,
    ProduceOutcome,
    refused,
)
from broker.replication.hosted import HostedPartition
from broker.replication.partition_table import PartitionTable
from broker.replication.recoding import Recoding
from broker.replication.verification import Release, Verification
from broker.replication.waiters import OffsetWaiters, PendingProduce
from metadata_log.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2


def not_leader(tp: TopicPartition, hosted: HostedPartition | None) -> tuple[int, str]:
    """The code and message for a partition that this broker does not lead (C12, C19)."""
    if hosted is None:
        return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no replica of {tp}"
    leader = hosted.replica.leader
    return errors_pb2.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {tp}: {leader} does"


_HELD: Final = ProduceOutcome()


class Producing:
    """Appends before its first await, so that requests of one connection keep their order.

    But for batches that are to have another codec, see ``recoding``, and those that would begin a
    transaction, see ``verification``; and what is behind them.
    """

    def __init__(self, table: PartitionTable, wall_clock_ms: Callable[[], int]) -> None:
        self._table = table
        self._wall_clock_ms = wall_clock_ms
        self.recoding = Recoding()
        self.verification: Verification | None = None
        """None: transactions begin unasked."""

    async def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> list[ProduceOutcome]:
        """One outcome per entry, in order.

        acks 0: appended. 1: durable here. -1: below the high watermark, so on every member of the
        maximal ISR.
        """
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            message = f"acks={acks}: must be -1, 0 or 1"
            return [ProduceOutcome(errors_pb2.INVALID_REQUIRED_ACKS, message) for _ in entries]
        pending = PendingProduce()
        for entry in entries:
            self._append(entry, acks, pending)
        if acks == ACKS_NONE and pending.outcomes:
            with contextlib.suppress(KafkaError):
                await self._table.store.wait_for_room()
        return await pending.wait(timeout_ms)

    async def write_markers(
        self, entries: Sequence[MarkerEntry], timeout_ms: int, timestamp_ms: int
    ) -> list[int]:
        """End transactions in partitions led here; an error code per entry, in order.

        Answered once the marker is committed. Whoever is told of an error, or of nothing, sends it
        again: a marker that ends nothing does no harm.
        """
        epochs = [self._leader_epoch(entry.tp) for entry in entries]
        batches = {
            marker: encode_marker(marker, timestamp_ms)
            for marker in {entry.marker for entry in entries}
        }
        produced = [
            ProduceEntry(entry.tp, batches[entry.marker], Origin.MARKERS) for entry in entries
        ]
        outcomes = await self.produce(produced, ACKS_ALL, timeout_ms)
        for entry, epoch, outcome in zip(entries, epochs, outcomes, strict=True):
            if outcome.error_code == errors_pb2.NONE:
                self._tell_of_end(entry, epoch, outcome.base_offset)
        return [outcome.error_code for outcome in outcomes]

    def _leader_epoch(self, tp: TopicPartition) -> LeaderEpoch | None:
        hosted = self._table.named(tp)
        return hosted.replica.leader_epoch if hosted is not None and hosted.leads else None

    def _tell_of_end(self, entry: MarkerEntry, epoch: LeaderEpoch | None, offset: int) -> None:
        """Whoever leads in another epoch has found the marker in the log."""
        hosted = self._table.named(entry.tp)
        if (
            hosted is not None
            and hosted.on_transaction_end is not None
            and self._leader_epoch(entry.tp) == epoch
        ):
            hosted.on_transaction_end(entry.marker, offset)

    def _append(self, entry: ProduceEntry, acks: int, pending: PendingProduce) -> None:
        hosted = self._table.named(entry.tp)
        if hosted is not None and hosted.leads and self._is_held(hosted, entry, acks, pending):
            return
        outcome, waiters, needed = self._appended(hosted, entry, acks)
        pending.outcomes.append(outcome)
        if waiters is not None:
            waiters.add(needed, pending, pending.expect())

    def _is_held(
        self, hosted: HostedPartition, entry: ProduceEntry, acks: int, pending: PendingProduce
    ) -> bool:
        """Whether it waits for another codec, see ``recoding``, or for the coordinator's word, see
        ``verification``."""
        if self.recoding.is_needed(hosted, entry):
            pending.outcomes.append(_HELD)
            go_on = partial(self._go_on, acks, pending, pending.expect())
            self.recoding.hold(hosted, entry, go_on)
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
        """Asks a coordinator and goes on then; None: nobody is to be asked."""
        if self.verification is None or entry.transactional_id is None:
            return None
        batch = self.verification.needed(hosted, entry)
        return None if batch is None else partial(self.verification.hold, hosted, batch)

    def _go_on(
        self,
        acks: int,
        pending: PendingProduce,
        position: int,
        entry: ProduceEntry,
        refusal: KafkaError | None,
    ) -> None:
        """With the codec it was to have."""
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
        pending: PendingProduce,
        position: int,
        refusal: KafkaError | None,
    ) -> None:
        if not pending.is_open(position):
            return  # Its time was up: the producer sends it again.
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
    ) -> tuple[ProduceOutcome, OffsetWaiters | None, int]:
        """What became of it, and where to wait for which offset before that is true."""
        if hosted is None or not hosted.leads:
            return ProduceOutcome(*not_leader(entry.tp, hosted)), None, 0
        replica = hosted.replica
        if acks == ACKS_ALL and not replica.has_enough_replicas:
            message = (
                f"the ISR of {entry.tp} is {list(replica.isr.committed)}, below "
                f"min.insync.replicas={replica.min_insync_replicas}"
            )
            hosted.traffic.produces_refused += 1
            return ProduceOutcome(errors_pb2.NOT_ENOUGH_REPLICAS, message), None, 0
        end_before = hosted.log.log_end_offset
        try:
            appended = hosted.log.append_as_leader(
                entry.records, replica.leader_epoch, entry.origin, self._wall_clock_ms()
            )
        except KafkaError as error:
            hosted.traffic.produces_refused += 1
            return refused(error), None, 0
        outcome = ProduceOutcome(
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=hosted.log.log_start_offset,
        )
        needed = appended.last_offset + 1
        hosted.traffic.bytes_in += len(entry.records)
        # Not what was sent again: where a part of it was there already, that may be far below.
        hosted.traffic.records_in += hosted.log.log_end_offset - end_before
        if acks == ACKS_ALL and replica.high_watermark < needed:
            return outcome, hosted.waiting_for_commit, needed
        if acks == ACKS_LEADER and hosted.log.flushed_offset < needed:
            return outcome, hosted.waiting_for_flush, needed
        return outcome, None, 0
