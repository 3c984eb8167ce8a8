"""Moves replicas between the log folders of this broker while it runs (KIP-113).

A move copies the log into a *future* log in the other folder, at the pace of
``replica.alter.log.dirs.io.max.bytes.per.second``. When the future log has nearly all, the replica
stops for some milliseconds, the rest is copied, the future log counts from then on, and the old one
is deleted. A crash leaves the old log, or the new one, or both with the same batches: the start
keeps the newer one. A start that finds a future log begins its move again, from the beginning.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import ColdRead, PartitionLog
from quorate.broker.log.log_manager import LogManager
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.replication.commands.control_commands import ControlCommands
from quorate.broker.replication.commands.stray_partitions import ImageReader, QuorumReader
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.hosting.replication_throttle import UNLIMITED
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.types import TopicIdPartition, TopicPartition
from quorate.metadata_log.image import Image
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 256 << 10
"""The bytes that are read at once. About so many are left when the replica stops. Not more than two
pieces wait to be flushed: a producer whose batch comes behind them waits for them, too."""

RETRY_S: Final = 1.0
"""The pause before another attempt, when the leadership of the replica was about to change."""


FreshImage = Callable[[], Awaitable[Image]]
"""Reads the image of the metadata, not older than the call.

Raises QuorumError if the quorum does not answer."""


def fresh_image(quorum: QuorumReader, metadata: ImageReader) -> FreshImage:
    """Return a function that reads the image at the quorum."""

    async def read() -> Image:
        return await metadata.wait_for(await quorum.read_offset())

    return read


class CopyOutdated(Exception):
    """The log was truncated after it was copied."""


class MoveEnded(Exception):
    """The move cannot go on: its replica is gone, or its disk has failed."""


class ReplicaMover:
    """The moves of one broker, one after the other in the order in which they were asked for."""

    def __init__(
        self, table: PartitionTable, commands: ControlCommands, fresh_image: FreshImage
    ) -> None:
        self._table = table
        self._commands = commands
        self._fresh_image = fresh_image
        self._turn = asyncio.Lock()
        self._moves: dict[TopicIdPartition, asyncio.Task[None]] = {}
        self._copied: tuple[PartitionLog, int] | None = None
        """The log that the move in turn copies, and how often it had been truncated then."""
        self._finishing: asyncio.Task[bool] | None = None
        """The end of a move, which must not be interrupted."""
        self._tasks = BackgroundTasks()

    def resume(self) -> None:
        """Begin the moves again that an earlier process has not ended."""
        for store in self._table.store.stores:
            for tip, future in tuple(store.futures.items()):
                hosted = self._table.get(tip)
                if hosted is not None and tip not in self._moves:
                    self._begin(hosted, future, store)

    async def move(self, tp: TopicPartition, directory: Path) -> int:
        """Begin to move a replica into a folder. Return a Kafka error code.

        A replica that is not here yet goes there when it comes, as in Kafka. One that is there
        already stays, and a move of it ends.
        """
        store = self._table.store
        destination = store.store_at(directory)
        if destination is None:
            is_known = directory in store.directories
            return errors_pb2.KAFKA_STORAGE_ERROR if is_known else errors_pb2.LOG_DIR_NOT_FOUND
        hosted = self._table.named(tp)
        if hosted is None:
            store.prefer(tp, directory)
            return errors_pb2.REPLICA_NOT_AVAILABLE
        if hosted.log.is_offline:
            return errors_pb2.KAFKA_STORAGE_ERROR
        future = store.future_of(hosted.tip)
        if future is not None and future.directory == directory:
            return errors_pb2.NONE
        await self._end(hosted.tip)
        hosted = self._table.get(hosted.tip)
        if hosted is not None and hosted.log.directory != directory:
            try:
                self._begin(hosted, destination.futures.create(hosted.log), destination)
            except KafkaError as error:
                log.error("%s is not moved to %s: %s", tp, directory, error)
                return error.code
        return errors_pb2.NONE

    async def close(self) -> None:
        """Stop copying. The next start begins the moves again."""
        if self._finishing is not None:
            await asyncio.gather(self._finishing, return_exceptions=True)
        await self._tasks.close()

    def _begin(
        self, hosted: HostedPartition, future: PartitionLog, destination: LogManager
    ) -> None:
        log.info("%s moves from %s to %s", hosted.tp, hosted.log.directory, destination.directory)
        work = self._run(hosted.tip, future, destination)
        self._moves[hosted.tip] = self._tasks.start(work, f"move-{hosted.tp}")

    async def _end(self, tip: TopicIdPartition) -> None:
        """End a move of this replica, if there is one. What it has copied is deleted."""
        task = self._moves.pop(tip, None)
        if task is None:
            return
        if self._finishing is not None:
            await asyncio.gather(self._finishing, return_exceptions=True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store = self._table.store
        future = store.future_of(tip)
        if future is not None:
            await self._discard(future)

    async def _run(
        self, tip: TopicIdPartition, future: PartitionLog, destination: LogManager
    ) -> None:
        async with self._turn:
            try:
                self._copied = None
                while not await self._attempt(tip, future, destination):
                    await asyncio.sleep(RETRY_S)
                log.info("%r is in %s now", future, destination.directory)
            except (KafkaError, DamagedBatch, MoveEnded, OSError) as error:
                log.error("%r is not moved to %s: %s", future, destination.directory, error)
                await self._discard(future)
        if self._moves.get(tip) is asyncio.current_task():
            del self._moves[tip]

    async def _attempt(
        self, tip: TopicIdPartition, future: PartitionLog, destination: LogManager
    ) -> bool:
        """Copy the log, and then go on with the copy. Return whether that was possible now."""
        await self._copy(tip, future, destination)
        try:
            image = await self._fresh_image()
        except (QuorumError, TimeoutError) as error:
            log.info("%r waits for the quorum: %s", future, error)
            return False
        hosted = self._table.get(tip)
        if hosted is None:
            raise MoveEnded("its replica is gone")
        finish = partial(self._finish, hosted, future, destination)
        self._finishing = asyncio.ensure_future(self._commands.replace_log(hosted, image, finish))
        try:
            return await asyncio.shield(self._finishing)
        except CopyOutdated:
            return False
        finally:
            self._finishing = None

    async def _copy(
        self, tip: TopicIdPartition, future: PartitionLog, destination: LogManager
    ) -> None:
        """Copy at the configured pace, until a piece reaches the end of what is durable."""
        while True:
            source = self._source(tip)
            if self._copied != (source, source.truncations):
                self._copied = source, source.truncations
                await future.truncate_fully_and_start_at(source.log_start_offset)
                continue
            if future.log_end_offset < source.log_start_offset:
                await future.truncate_fully_and_start_at(source.log_start_offset)
            durable = source.flushed_offset
            copied = future.log_end_offset
            size = await _copy_piece(source, future, durable)
            if not size or future.log_end_offset >= durable:
                return
            await destination.writer.wait_for_flush(future, copied)
            await destination.writer.wait_for_turn()
            await self._pause(size)

    async def _pause(self, size: int) -> None:
        """Wait as ``replica.alter.log.dirs.io.max.bytes.per.second`` asks for. The rate may change
        meanwhile, and 0 stops all moves."""
        left = float(size)
        while left > 0:
            rate = self._table.throttles.move_rate()
            if rate >= UNLIMITED:
                await asyncio.sleep(0)
                return
            await asyncio.sleep(min(1.0, left / rate) if rate else 1.0)
            left -= rate

    async def _finish(
        self, hosted: HostedPartition, future: PartitionLog, destination: LogManager
    ) -> None:
        """Copy the rest of a replica that has stopped, and have the copy count.

        The copy is promoted before the old log is deleted, and nothing is appended in between:
        after a crash, it does not matter which of the two counts.
        """
        source = hosted.log
        if self._copied != (source, source.truncations):
            raise CopyOutdated
        store = self._table.store.store_of(source)
        if not store.is_full:  # Off a full disk a replica can move, too: the copy counts anyway.
            await store.writer.settle()
        copied = future.log_end_offset
        while await _copy_piece(source, future, source.log_end_offset):
            await destination.writer.wait_for_flush(future, copied)
            copied = future.log_end_offset
        await destination.writer.settle()
        await future.start_at(source.log_start_offset)
        try:
            await destination.futures.promote(future)
        except KafkaError:
            # Nobody knows whether it counts on the disk: the old log, which goes on, must.
            await store.futures.outrank(source, future.placement)
            raise
        future.note_checkpointed(hosted.replica.high_watermark)
        try:
            await store.delete(source.tip)
        except KafkaError as error:
            log.error("%r is moved, and its old log is not deleted yet: %s", source, error)
        self._table.store.checkpoint_high_watermarks({future.tip: hosted.replica.high_watermark})

    def _source(self, tip: TopicIdPartition) -> PartitionLog:
        hosted = self._table.get(tip)
        if hosted is None:
            raise MoveEnded("its replica is gone")
        if hosted.log.is_offline or hosted.is_damaged:
            raise MoveEnded("the log cannot be read")
        return hosted.log

    async def _discard(self, future: PartitionLog) -> None:
        destination = self._table.store.store_at(future.directory)
        if destination is None:
            return
        try:
            await destination.futures.delete(future)
        except KafkaError as error:
            log.error("the copy %r is not deleted yet: %s", future, error)


async def _copy_piece(source: PartitionLog, future: PartitionLog, up_to_offset: int) -> int:
    """Copy whole batches that end below ``up_to_offset``. Return their bytes; 0 if none are left.

    Raises:
        KafkaError, DamagedBatch: One of the logs cannot be used.
    """
    while future.log_end_offset < up_to_offset:
        try:
            read = source.read(future.log_end_offset, PIECE_BYTES, up_to_offset, wait=False)
        except ColdRead as cold:
            await cold.load()
            continue
        if read.size:
            future.append_as_follower(b"".join(read.chunks))
        return read.size
    return 0
