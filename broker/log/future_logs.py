"""The copies that moves of replicas make in a log folder, until they count (KIP-113).

A *future* log is to take the place of a log in another folder. Its row in the table says so, and a
start does not take it for a replica. ``replication.moving`` has the moves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.checkpoints.partition_row import PartitionRow
from quorate.broker.log.checkpoints.store_table import StoreTable
from quorate.broker.log.partition_log import PartitionLog
from quorate.broker.log.writing.disk_space import DiskReserve
from quorate.broker.log.writing.housekeeping import Housekeeping
from quorate.broker.log.writing.log_writer import LogWriter
from quorate.common.types import TopicIdPartition
from quorate_proto.v1 import errors_pb2

Logs = dict[TopicIdPartition, PartitionLog]


class FolderParts(NamedTuple):
    """The parts of a folder with which its copies are made and deleted."""

    table: StoreTable
    writer: LogWriter
    housekeeping: Housekeeping
    reserve: DiskReserve
    create: Callable[[PartitionRow], PartitionLog]
    """Creates an empty log with this row, which gets a number; raises KAFKA_STORAGE_ERROR."""
    delete: Callable[[Sequence[PartitionLog]], Awaitable[None]]
    """Deletes logs durably; raises KAFKA_STORAGE_ERROR."""


class FutureLogs(Mapping[TopicIdPartition, PartitionLog]):
    """The copies in one folder, by topic id and partition. ``logs`` are the logs that count."""

    def __init__(self, logs: Logs, parts: FolderParts) -> None:
        self.copies: Logs = {}
        """The copies, to which the folder adds what it creates and finds."""
        self._logs = logs
        self._parts = parts

    def __getitem__(self, tip: TopicIdPartition) -> PartitionLog:
        return self.copies[tip]

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return iter(self.copies)

    def __len__(self) -> int:
        return len(self.copies)

    def create(self, source: PartitionLog) -> PartitionLog:
        """Return a new and empty log that is to take the place of ``source``, which is in another
        folder.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        row = replace(source.row, placement=source.placement + 1, is_future=True)
        return self._parts.create(row)

    async def promote(self, future: PartitionLog) -> None:
        """Have the copy count as the log from now on, with all that was appended to it. It is
        durable on return.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        await self._parts.writer.settle()
        await self._replace_row(future, future.placement)
        self._logs[future.tip] = self.copies.pop(future.tip)

    async def outrank(self, partition_log: PartitionLog, placement: int) -> None:
        """Have a log of this folder count for more than a copy of this placement, whether or not
        that one was promoted. It is durable on return.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        await self._replace_row(partition_log, placement + 1)
        partition_log.placement = placement + 1

    async def delete(self, future: PartitionLog) -> None:
        """Delete the copy of a move that does not take place.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.copies.get(future.tip) is future:
            await self._parts.delete([self.copies.pop(future.tip)])

    async def _replace_row(self, partition_log: PartitionLog, placement: int) -> None:
        parts = self._parts
        row = replace(partition_log.row, placement=placement)
        write = partial(parts.table.replace_partition, row)
        try:
            await asyncio.get_running_loop().run_in_executor(parts.housekeeping.ahead, write)
        except Exception as error:
            if not parts.reserve.explains(error):
                parts.writer.fail(error)
            message = f"cannot write the row of {partition_log!r}: {error}"
            raise KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, message) from error
