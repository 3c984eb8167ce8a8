"""``PartitionCoordinator``, the base of the group coordinator and the transaction coordinator.

Each group or transactional id belongs to one partition of the coordinator's topic by its name, and
the leader of that partition coordinates it. Its state is in that log and nowhere else: a new leader
loads it from the log before it answers.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.internal_topics import partition_of
from quorate.broker.coordinator.shards.coordinator_records import TransactionEnd
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.common.background_tasks import BackgroundTasks
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
"""The pause between attempts to load a log that could not be read."""


class CoordinatorShard(Protocol):
    """The state that one partition holds, while this broker leads it in one epoch."""

    name: str
    is_loading: bool

    async def load(self) -> None:
        """Load the state from the log; until then clients have to retry every request.

        Raises:
            KafkaError: the log cannot be read now.
        """

    def end(self, error_code: int) -> None:
        """End because the leadership is lost or the broker stops; waiting requests get the code."""


S = TypeVar("S", bound=CoordinatorShard)


class PartitionCoordinator(ABC, Generic[S]):
    """The part that the group coordinator and the transaction coordinator have in common.

    It has a shard for each partition of its topic that this broker leads, loads the shard from the
    log, and finds the shard of a name. All methods run on the event loop.
    """

    def __init__(
        self,
        what: str,
        topic: str,
        partition_count: Callable[[str], int],
    ) -> None:
        """``what`` names a coordinated thing in messages, such as "group".

        ``partition_count`` returns the partitions of a topic, 0 while it does not exist.
        """
        self._what = what
        self._topic = topic
        self._partition_count = partition_count
        self._shards: dict[int, S] = {}
        self._logs: dict[int, LedPartition] = {}
        self._failed: set[int] = set()
        """The partitions whose log was read and not understood, because of a fault of ours."""
        self._tasks = BackgroundTasks()

    @abstractmethod
    def _new_shard(self, name: str, log: LedPartition) -> S:
        """Return a shard, not loaded, of the partition with that name and that log."""

    def end_transaction(self, partition: int, end: TransactionEnd) -> None:
        """Take note that a transaction's marker is committed in that partition."""

    def lead(self, partition: int, log: LedPartition) -> None:
        """Load a partition that this broker leads from now on.

        Nothing happens if it is loaded in that epoch already. In a later epoch the log is read
        again, because others may have written in between.
        """
        before = self._logs.get(partition)
        if before is not None and before.leader_epoch == log.leader_epoch:
            return
        self.resign(partition)
        shard = self._new_shard(f"{self._topic}-{partition}", log)
        self._shards[partition] = shard
        self._logs[partition] = log
        self.spawn(self._load(partition, shard))

    def resign(self, partition: int) -> None:
        """Unload a partition that this broker no longer leads; it may never have led it."""
        self._logs.pop(partition, None)
        self._failed.discard(partition)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.end(errors_pb2.NOT_COORDINATOR)

    def shard_in(self, partition: int) -> S | None:
        """Return the shard of a partition, perhaps still loading, or None if it is led
        elsewhere."""
        return self._shards.get(partition)

    async def close(self) -> None:
        """Unload all partitions; waiting clients are told to look for another coordinator."""
        for partition in list(self._shards):
            self.resign(partition)
        await self._tasks.close()

    def shard_of(self, name: str) -> S:
        """Return the shard that coordinates ``name``.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        count = self.partition_count
        if not count:
            raise KafkaError(
                errors_pb2.COORDINATOR_NOT_AVAILABLE,
                f"{self._what} {name!r}: {self._topic} does not exist yet; "
                "look for the coordinator",
            )
        partition = partition_of(name, count)
        shard = self._shards.get(partition)
        if shard is None or not self._logs[partition].has_valid_lease:
            raise KafkaError(
                errors_pb2.NOT_COORDINATOR,
                f"{self._what} {name!r} is coordinated by another broker, or may be; look for it "
                "again",
            )
        if partition in self._failed:
            raise KafkaError(
                errors_pb2.COORDINATOR_NOT_AVAILABLE,
                f"{self._what} {name!r}: {shard.name} failed to load, see the log of this broker; "
                "another leader of that partition will try again",
            )
        if shard.is_loading:
            raise KafkaError(
                errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
                f"{self._what} {name!r}: its log is being read; try again",
            )
        return shard

    @property
    def is_loading(self) -> bool:
        """Return whether a shard is still being loaded, so that answers may be incomplete."""
        shards = self._shards.items()
        return any(shard.is_loading and at not in self._failed for at, shard in shards)

    def answering(self) -> Iterator[tuple[int, S]]:
        """Yield the partitions that are loaded, and that this broker surely leads."""
        for partition, shard in tuple(self._shards.items()):
            if not shard.is_loading and self._logs[partition].has_valid_lease:
                yield partition, shard

    @property
    def partition_count(self) -> int:
        """The number of partitions of the topic; 0 while it does not exist."""
        return self._partition_count(self._topic)

    def loaded_shards(self) -> Iterator[S]:
        """Return the loaded shards; partitions may come and go while they are iterated."""
        return (shard for shard in tuple(self._shards.values()) if not shard.is_loading)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background, until ``close``."""
        self._tasks.start(work)

    async def _load(self, partition: int, shard: S) -> None:
        while self._shards.get(partition) is shard:
            try:
                await shard.load()
            except KafkaError as error:
                _log.error("%s cannot be read, trying again: %s", shard.name, error.message)
                await asyncio.sleep(_RETRY_S)
            except Exception:  # noqa: BLE001 - logged, and told to whoever asks
                # The same records would fail again. Other partitions are not concerned.
                _log.exception(
                    "%s failed to load: what it coordinates is not available while this broker "
                    "leads it",
                    shard.name,
                )
                if self._shards.get(partition) is shard:
                    self._failed.add(partition)
                return
            else:
                return
