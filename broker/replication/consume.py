"""Consuming: long polls below the high watermark, and offsets by time (C16, C19)."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from typing import Final

from broker.errors import KafkaError
from broker.log import ColdRead
from broker.log.aborted_transactions import AbortedTransaction
from broker.replication.api import (
    EARLIEST_TIMESTAMP_MS,
    LATEST_TIMESTAMP_MS,
    MAX_TIMESTAMP_MS,
    EpochEnd,
    FetchOutcome,
    FetchTerms,
    FetchWant,
    Isolation,
    OffsetOutcome,
)
from broker.replication.hosted import HostedPartition
from broker.replication.partition.checks import check_fetch_offset, check_leader_epoch
from broker.replication.partition.effects import Role
from broker.replication.partition.preferred_replica import preferred_replica
from broker.replication.partition_table import PartitionTable
from broker.replication.polling import Poll, Position
from broker.replication.produce import not_leader
from broker.replication.turns import ReadTurns
from broker.replication.waiters import Wakeup
from metadata_log.types import BrokerId, LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_PARTITION_BYTES_MAX: Final = 8 << 20
"""Of one partition in one answer: it is read in one go."""

_NOT_LOOKED_AT: Final = FetchOutcome()


class Consuming:
    """Reads for consumers: only what is committed, from leaders unless they ask otherwise."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table
        self._turns = ReadTurns()

    async def fetch(self, wants: Sequence[FetchWant], terms: FetchTerms) -> list[FetchOutcome]:
        """One outcome per want, in order; as ``poll``, but for no longer than this."""
        if not wants:
            return []
        poll = Poll()
        positions = [poll.add(want) for want in wants]
        try:
            found = await self.poll(poll, terms)
        finally:
            poll.close(positions)
        return [found[position] for position in positions]

    async def poll(self, poll: Poll, terms: FetchTerms) -> dict[Position, FetchOutcome]:
        """The outcome of every position that has news."""
        deadline_ms = self._table.now_ms() + terms.max_wait_ms
        found: dict[Position, FetchOutcome] = {}
        wakeup = poll.wakeup = Wakeup()
        try:
            while True:
                enough = await self._look(poll, found, terms)
                left_ms = deadline_ms - self._table.now_ms()
                if enough or left_ms <= 0 or poll.is_closed:
                    break
                await wakeup.wait(left_ms / 1000)
        except BaseException:
            poll.keep(found)
            raise
        finally:
            poll.wakeup = None
        self._count(found)
        return found

    async def _look(
        self, poll: Poll, found: dict[Position, FetchOutcome], terms: FetchTerms
    ) -> bool:
        """Whether ``found`` is enough, once it has what is new.

        What had records is read again: there may be room for others now, or less for these. They
        go before that, they are to count once.
        """
        looked_at = {position: None for position, outcome in found.items() if outcome.size}
        looked_at.update(poll.take_news())
        if not looked_at:
            return terms.min_bytes <= 0
        found.update(dict.fromkeys(looked_at, _NOT_LOOKED_AT))
        for position in looked_at:
            # First, so that nothing is missed that happens while others are read.
            hosted = self._table.named(position.want.tp)
            position.watch(None if hosted is None else hosted.fetch_waiters)
        wants = [position.want for position in looked_at]
        outcomes, enough = await self._read(wants, terms)
        found.update(zip(looked_at, outcomes, strict=True))
        return enough

    def _count(self, found: Mapping[Position, FetchOutcome]) -> None:
        """What is answered with; what was read before in vain does not count as traffic."""
        for position, outcome in found.items():
            if outcome.size and (hosted := self._table.named(position.want.tp)) is not None:
                hosted.traffic.bytes_out += outcome.size

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        current_leader_epoch: int = -1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> OffsetOutcome:
        """Latest (-1: as far as is read), earliest (-2), that of the greatest timestamp (-3), or
        the first at or after a timestamp.

        OFFSET_NOT_AVAILABLE where the answer may lie beyond the watermark of a leader that does not
        know yet how much is committed: what a client was told once must not be taken back (C19).
        """
        hosted, code = self._led(tp, current_leader_epoch)
        if hosted is None:
            return OffsetOutcome(code)
        replica, partition_log = hosted.replica, hosted.log
        epoch = replica.leader_epoch
        if timestamp_ms == EARLIEST_TIMESTAMP_MS:
            return OffsetOutcome(offset=partition_log.log_start_offset, leader_epoch=epoch)
        end_offset = end_of_reads(hosted, isolation)
        not_yet = errors_pb2.NONE
        if not replica.knows_what_is_committed:
            not_yet = errors_pb2.OFFSET_NOT_AVAILABLE
        if timestamp_ms == LATEST_TIMESTAMP_MS:
            offset = -1 if not_yet else end_offset
            return OffsetOutcome(not_yet, offset=offset, leader_epoch=epoch)
        if timestamp_ms == MAX_TIMESTAMP_MS:
            if not_yet:
                return OffsetOutcome(not_yet, leader_epoch=epoch)
            found = partition_log.offset_of_max_timestamp(end_offset)
        elif timestamp_ms < 0:
            return OffsetOutcome(errors_pb2.INVALID_REQUEST, leader_epoch=epoch)
        else:
            found = partition_log.offset_for_timestamp(timestamp_ms, end_offset)
        if found is None:
            return OffsetOutcome(not_yet, leader_epoch=epoch)
        return OffsetOutcome(offset=found[0], timestamp_ms=found[1], leader_epoch=epoch)

    def offset_for_leader_epoch(
        self, tp: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEnd:
        """Where ``leader_epoch`` ends in the leader's log: how clients notice truncation."""
        hosted, code = self._led(tp, current_leader_epoch)
        return EpochEnd(code) if hosted is None else epoch_end(hosted, leader_epoch)

    def _led(
        self, tp: TopicPartition, current_leader_epoch: int
    ) -> tuple[HostedPartition, int] | tuple[None, int]:
        hosted = self._table.named(tp)
        if hosted is None or not hosted.leads:
            return None, not_leader(tp, hosted)[0]
        code = check_leader_epoch(current_leader_epoch, hosted.replica.leader_epoch)
        return (hosted, code) if code == errors_pb2.NONE else (None, code)

    async def _read(
        self, wants: Sequence[FetchWant], terms: FetchTerms
    ) -> tuple[list[FetchOutcome], bool]:
        """As ``_read_now``, once what is on the disk alone was loaded."""
        cold: list[ColdRead] = []
        found = await self._read_now(wants, terms, cold)
        if not cold:
            return found
        loads = [one.load() for one in cold]
        # What was read besides is read again. It goes now, out of the exceptions' frames too: it is
        # to count once.
        del found
        cold.clear()
        await asyncio.gather(*loads)
        return await self._read_now(wants, terms)

    async def _read_now(
        self, wants: Sequence[FetchWant], terms: FetchTerms, cold: list[ColdRead] | None = None
    ) -> tuple[list[FetchOutcome], bool]:
        """Outcomes, and whether they need not wait: enough bytes, an error, or no room for more.

        What would have to be waited for goes to ``cold`` and has no outcome; None: wait for it.
        """
        outcomes: list[FetchOutcome] = []
        size = 0
        must_be_told = False
        room_bytes = terms.room.reserve(terms.max_bytes)
        for want in wants:
            if self._turns.is_over:
                await self._turns.wait()
            try:
                outcome = self._read_one(want, room_bytes - size, terms, wait=cold is None)
            except ColdRead as one:
                assert cold is not None
                cold.append(one)
                size += one.size
                continue
            size += outcome.size
            if outcome.error_code != errors_pb2.NONE or outcome.preferred_read_replica >= 0:
                must_be_told = True
            outcomes.append(outcome)
        terms.room.keep(size)
        as_much_as_fits = room_bytes < terms.max_bytes and (size > 0 or room_bytes == 0)
        return outcomes, must_be_told or size >= terms.min_bytes or as_much_as_fits

    def _read_one(
        self, want: FetchWant, room: int, terms: FetchTerms, *, wait: bool
    ) -> FetchOutcome:
        hosted, code = self._readable(want, terms.near)
        if hosted is None:
            return FetchOutcome(code)
        partition_log, high_watermark = hosted.log, hosted.replica.high_watermark
        start = partition_log.log_start_offset
        code = check_fetch_offset(want.fetch_offset, start, partition_log.log_end_offset)
        if code != errors_pb2.NONE:
            if not hosted.leads and want.fetch_offset > partition_log.log_end_offset:
                code = errors_pb2.OFFSET_NOT_AVAILABLE
            return FetchOutcome(code, high_watermark, start)
        stable = hosted.last_stable_offset
        if terms.near and hosted.leads:
            preferred = preferred_replica(hosted.replica, want.fetch_offset, terms.near)
            if preferred is not None:
                return FetchOutcome(
                    high_watermark=high_watermark,
                    log_start_offset=start,
                    last_stable_offset=stable,
                    preferred_read_replica=preferred,
                )
        end_offset = end_of_reads(hosted, terms.isolation)
        if want.fetch_offset >= end_offset or room <= 0:
            return FetchOutcome(errors_pb2.NONE, high_watermark, start, (), 0, stable)
        try:
            max_bytes = min(want.max_bytes, room, _PARTITION_BYTES_MAX)
            read = partition_log.read(want.fetch_offset, max_bytes, end_offset, wait=wait)
        except KafkaError as error:
            # Whatever is wrong with a follower's log, its leader may have what is asked for.
            code = error.code if hosted.leads else errors_pb2.OFFSET_NOT_AVAILABLE
            return FetchOutcome(code, high_watermark, start)
        self._turns.took(read.size)
        aborted: Sequence[AbortedTransaction] = ()
        if terms.isolation is Isolation.READ_COMMITTED:
            aborted = partition_log.transactions.aborted(want.fetch_offset, read.next_offset)
        return FetchOutcome(
            errors_pb2.NONE, high_watermark, start, read.chunks, read.size, stable, aborted
        )

    def _readable(
        self, want: FetchWant, near: Set[BrokerId] | None
    ) -> tuple[HostedPartition, int] | tuple[None, int]:
        """The partition, if it is led here; or followed, for who reads from followers."""
        hosted = self._table.named(want.tp)
        if near is None or hosted is None or hosted.replica.role is not Role.FOLLOWER:
            return self._led(want.tp, want.current_leader_epoch)
        code = check_leader_epoch(want.current_leader_epoch, hosted.replica.leader_epoch)
        return (hosted, code) if code == errors_pb2.NONE else (None, code)


def end_of_reads(hosted: HostedPartition, isolation: Isolation) -> int:
    """The first offset that a consumer is not shown yet."""
    if isolation is Isolation.READ_COMMITTED:
        return hosted.last_stable_offset
    return hosted.replica.high_watermark


def epoch_end(hosted: HostedPartition, leader_epoch: int) -> EpochEnd:
    """The history's answer; the leader itself assigns every epoch it leads in."""
    partition_log = hosted.log
    found = partition_log.leader_epochs.end_offset_for(
        LeaderEpoch(leader_epoch), partition_log.log_end_offset
    )
    return EpochEnd(errors_pb2.NONE, found.leader_epoch, found.end_offset)
