"""Fetch and ListOffsets: long polls below the high watermark, offsets by time (C16, C19)."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import ColdRead
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.replication.api import (
    EARLIEST_TIMESTAMP_MS,
    LATEST_TIMESTAMP_MS,
    MAX_TIMESTAMP_MS,
    EpochEndOffset,
    FetchOutcome,
    FetchParams,
    FetchPartition,
    Isolation,
    OffsetOutcome,
)
from quorate.broker.replication.hosting.delayed_fetch import DelayedFetch, FetchPosition
from quorate.broker.replication.hosting.hosted_partition import HostedPartition, not_leader
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.partition.checks import check_fetch_offset, check_leader_epoch
from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.broker.replication.serving.read_turns import ReadTurns
from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_PARTITION_BYTES_MAX: Final = 8 << 20
"""The most that one answer has of one partition: it is read in one go."""

_FEW_PARTITIONS: Final = 64
_LOOK_BYTES: Final = 16 << 10
"""The bytes that a look at one partition counts as: it takes as long as reading so many bytes, even
if nothing is read."""

_NOT_LOOKED_AT: Final = FetchOutcome()


class RecordReader:
    """Reads for consumers: only what is committed, from leaders unless they ask otherwise."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table
        self._turns = ReadTurns()

    async def fetch(
        self, wants: Sequence[FetchPartition], params: FetchParams
    ) -> list[FetchOutcome]:
        """Return one outcome per want, in order. It is a ``poll`` that ends with this fetch."""
        if not wants:
            return []
        delayed = DelayedFetch()
        positions = [delayed.add(want) for want in wants]
        try:
            found = await self.poll(delayed, params)
        finally:
            delayed.close(positions)
        return [found[position] for position in positions]

    async def poll(
        self, delayed: DelayedFetch, params: FetchParams
    ) -> dict[FetchPosition, FetchOutcome]:
        """Return the outcome of every position that has news."""
        deadline_ms = self._table.clock.now_ms() + params.max_wait_ms
        found: dict[FetchPosition, FetchOutcome] = {}
        wakeup = delayed.begin_wait()
        try:
            while True:
                enough = await self._look(delayed, found, params)
                left_ms = deadline_ms - self._table.clock.now_ms()
                if enough or left_ms <= 0 or delayed.is_closed:
                    break
                await wakeup.wait(left_ms / 1000)
        except BaseException:
            delayed.keep(found)
            raise
        finally:
            delayed.end_wait()
        self._count(found)
        return found

    async def _look(
        self, delayed: DelayedFetch, found: dict[FetchPosition, FetchOutcome], params: FetchParams
    ) -> bool:
        """Add what is new to ``found``, and return whether that is enough for an answer.

        Positions that had records are read again: there may be room for others now, or less for
        these. Their old records are dropped before that, so that memory counts them once.
        """
        looked_at = {position: None for position, outcome in found.items() if outcome.size}
        looked_at.update(delayed.take_news())
        if not looked_at:
            return params.min_bytes <= 0
        found.update(dict.fromkeys(looked_at, _NOT_LOOKED_AT))
        for position in looked_at:
            # Watched before the reading, so that nothing is missed that happens meanwhile.
            want = position.want
            hosted = self._table.named(want.tp, want.topic_id)
            position.watch(None if hosted is None else hosted.fetch_waiters)
        wants = [position.want for position in looked_at]
        outcomes, enough = await self._read(wants, params)
        found.update(zip(looked_at, outcomes, strict=True))
        return enough

    def _count(self, found: Mapping[FetchPosition, FetchOutcome]) -> None:
        """Count the answer as traffic; what was read before in vain does not count."""
        for position, outcome in found.items():
            if outcome.size and (hosted := self._table.named(position.want.tp)) is not None:
                hosted.traffic.sent(outcome.size)

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        current_leader_epoch: int = -1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> OffsetOutcome:
        """Return the latest (-1), earliest (-2) or first offset at or after a timestamp.

        The latest is where consumers of that isolation stop reading; -3 asks for the offset of the
        greatest timestamp. The error is OFFSET_NOT_AVAILABLE where the answer may lie beyond the
        watermark of a leader that does not know yet how much is committed: what a client was told
        once must not be taken back (C19).
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
    ) -> EpochEndOffset:
        """Return where ``leader_epoch`` ends in the leader's log: so clients notice truncation."""
        hosted, code = self._led(tp, current_leader_epoch)
        return EpochEndOffset(code) if hosted is None else epoch_end(hosted, leader_epoch)

    def _led(
        self, tp: TopicPartition, current_leader_epoch: int
    ) -> tuple[HostedPartition, int] | tuple[None, int]:
        """Return the partition if it is led here in that epoch, or None and an error code."""
        hosted = self._table.named(tp)
        if hosted is None or not hosted.leads:
            return None, not_leader(tp, hosted)[0]
        return _in_epoch(hosted, current_leader_epoch)

    async def _read(
        self, wants: Sequence[FetchPartition], params: FetchParams
    ) -> tuple[list[FetchOutcome], bool]:
        """Read, after loading what is on the disk alone."""
        cold: list[ColdRead] = []
        found = await self._read_now(wants, params, cold)
        if not cold:
            return found
        loads = [one.load() for one in cold]
        # What was read besides is read again. It is dropped now, out of the exceptions' frames too,
        # so that memory counts it once.
        del found
        cold.clear()
        await asyncio.gather(*loads)
        return await self._read_now(wants, params)

    async def _read_now(
        self,
        wants: Sequence[FetchPartition],
        params: FetchParams,
        cold: list[ColdRead] | None = None,
    ) -> tuple[list[FetchOutcome], bool]:
        """Return outcomes, and whether they are answered at once.

        They are with enough bytes, with an error, or without room for more. A read that would have
        to wait for the disk goes to ``cold`` and has no outcome; without ``cold`` it waits.
        """
        outcomes: list[FetchOutcome] = []
        size = 0
        must_be_told = False
        room_bytes = params.room.reserve(params.max_bytes)
        are_many = len(wants) > _FEW_PARTITIONS
        for want in wants:
            if are_many:
                self._turns.took(_LOOK_BYTES)
            if self._turns.is_over:
                await self._turns.wait()
            try:
                outcome = self._read_one(want, room_bytes - size, params, wait=cold is None)
            except ColdRead as one:
                assert cold is not None
                cold.append(one)
                size += one.size
                continue
            size += outcome.size
            if outcome.error_code != errors_pb2.NONE or outcome.preferred_read_replica >= 0:
                must_be_told = True
            outcomes.append(outcome)
        params.room.keep(size)
        as_much_as_fits = room_bytes < params.max_bytes and (size > 0 or room_bytes == 0)
        return outcomes, must_be_told or size >= params.min_bytes or as_much_as_fits

    def _read_one(
        self, want: FetchPartition, room: int, params: FetchParams, *, wait: bool
    ) -> FetchOutcome:
        hosted, code = self._readable(want, params.near)
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
        if params.near and hosted.leads:
            preferred = hosted.replica.preferred_read_replica(want.fetch_offset, params.near)
            if preferred is not None:
                return FetchOutcome(
                    high_watermark=high_watermark,
                    log_start_offset=start,
                    last_stable_offset=stable,
                    preferred_read_replica=preferred,
                )
        end_offset = end_of_reads(hosted, params.isolation)
        if want.fetch_offset >= end_offset or room <= 0:
            return FetchOutcome(errors_pb2.NONE, high_watermark, start, (), 0, stable)
        try:
            max_bytes = min(want.max_bytes, room, _PARTITION_BYTES_MAX)
            read = partition_log.read(want.fetch_offset, max_bytes, end_offset, wait=wait)
        except KafkaError as error:
            # Whatever is wrong with a follower's log, the leader may have these records.
            code = error.code if hosted.leads else errors_pb2.OFFSET_NOT_AVAILABLE
            return FetchOutcome(code, high_watermark, start)
        self._turns.took(read.size)
        aborted: Sequence[AbortedTransaction] = ()
        if params.isolation is Isolation.READ_COMMITTED:
            aborted = partition_log.transactions.aborted(want.fetch_offset, read.next_offset)
        return FetchOutcome(
            errors_pb2.NONE, high_watermark, start, read.chunks, read.size, stable, aborted
        )

    def _readable(
        self, want: FetchPartition, near: Set[BrokerId] | None
    ) -> tuple[HostedPartition, int] | tuple[None, int]:
        """Return the partition if it is led here, or followed and the reader may read followers."""
        hosted = self._table.named(want.tp, want.topic_id)
        if hosted is None:
            return None, self._code_of_absent(want)
        if not hosted.leads and (near is None or hosted.replica.role is not ReplicaRole.FOLLOWER):
            return None, not_leader(want.tp, hosted)[0]
        return _in_epoch(hosted, want.current_leader_epoch)

    def _code_of_absent(self, want: FetchPartition) -> int:
        is_other_topic = self._table.named(want.tp) is not None
        return errors_pb2.INCONSISTENT_TOPIC_ID if is_other_topic else not_leader(want.tp, None)[0]


def _in_epoch(
    hosted: HostedPartition, current_leader_epoch: int
) -> tuple[HostedPartition, int] | tuple[None, int]:
    """Return the partition if the client knows its leader epoch, or None and an error code."""
    code = check_leader_epoch(current_leader_epoch, hosted.replica.leader_epoch)
    return (hosted, code) if code == errors_pb2.NONE else (None, code)


def end_of_reads(hosted: HostedPartition, isolation: Isolation) -> int:
    """Return the first offset that a consumer is not shown yet."""
    if isolation is Isolation.READ_COMMITTED:
        return hosted.last_stable_offset
    return hosted.replica.high_watermark


def epoch_end(hosted: HostedPartition, leader_epoch: int) -> EpochEndOffset:
    """Return the answer of the leader-epoch history, to which the leader adds its own epochs."""
    partition_log = hosted.log
    found = partition_log.leader_epochs.end_offset_for(
        LeaderEpoch(leader_epoch), partition_log.log_end_offset
    )
    return EpochEndOffset(errors_pb2.NONE, found.leader_epoch, found.end_offset)
