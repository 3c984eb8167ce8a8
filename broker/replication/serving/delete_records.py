"""DeleteRecords: the leader's log begins later, then its followers' do (KIP-107).

What is acknowledged is gone from every member of the ISR, so that no leader brings it back. Only
what is committed can be deleted: a log never begins beyond its high watermark.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.replication.api import DeleteOutcome, DeleteRecordsPartition
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.wakeup import Wakeup
from quorate_proto.v1 import errors_pb2

HIGH_WATERMARK: Final = -1
"""The offset in a request that stands for all that is committed."""

LOOK_AGAIN_MS: Final = 500
"""The interval at which the ISR is read again: no event tells when a follower leaves it."""


class RecordDeleter:
    """Moves log starts at the leader, and waits for the ISR."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    async def delete(
        self, wants: Sequence[DeleteRecordsPartition], timeout_ms: int
    ) -> list[DeleteOutcome]:
        """Return one outcome per want, in order."""
        deadline_ms = self._table.clock.now_ms() + timeout_ms
        return list(await asyncio.gather(*(self._delete(want, deadline_ms) for want in wants)))

    async def _delete(self, want: DeleteRecordsPartition, deadline_ms: int) -> DeleteOutcome:
        hosted = self._table.named(want.tp)
        if hosted is None or not hosted.leads:
            return DeleteOutcome(self._table.not_leader(want.tp, hosted)[0])
        committed = hosted.replica.high_watermark
        offset = committed if want.offset == HIGH_WATERMARK else want.offset
        if not 0 <= offset <= committed:
            return DeleteOutcome(errors_pb2.OFFSET_OUT_OF_RANGE)
        try:
            await hosted.log.start_at(offset)
        except KafkaError as error:
            return DeleteOutcome(error.code)
        hosted.log_start_moved()
        return await self._wait_for_isr(hosted, offset, deadline_ms)

    async def _wait_for_isr(
        self, hosted: HostedPartition, offset: int, deadline_ms: int
    ) -> DeleteOutcome:
        epoch = hosted.replica.leader_epoch
        wakeup = Wakeup()
        hosted.fetch_waiters[wakeup] = None
        try:
            while (low := low_watermark(hosted)) < offset:
                left_ms = deadline_ms - self._table.clock.now_ms()
                if not hosted.leads or hosted.replica.leader_epoch != epoch:
                    return DeleteOutcome(errors_pb2.NOT_LEADER_OR_FOLLOWER)
                if left_ms <= 0:
                    return DeleteOutcome(errors_pb2.REQUEST_TIMED_OUT)
                await wakeup.wait(min(left_ms, LOOK_AGAIN_MS) / 1000)
        finally:
            hosted.fetch_waiters.pop(wakeup, None)
        return DeleteOutcome(low_watermark=low)


def low_watermark(hosted: HostedPartition) -> int:
    """Return the first offset that some member of the ISR still has, as far as they told."""
    told = dict(
        position
        for watcher in hosted.watchers
        if (position := watcher.log_start_of(hosted)) is not None
    )
    starts = [
        told.get(member, 0)
        for member in hosted.replica.isr.committed
        if member != hosted.replica.broker_id
    ]
    return min([hosted.log.log_start_offset, *starts])
