"""What a coordinator has of each partition of its topic that this broker leads, and finds by name.

Each belongs to one partition of the coordinator's topic by its name, and whoever leads that
partition coordinates it. What is known of it is in that log and nowhere else: a new leader reads
it before it answers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from broker.background_tasks import BackgroundTasks
from broker.coordinator.appends import CoordinatorLog
from broker.coordinator.topics import partition_of
from broker.errors import KafkaError
from metadata_log.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
"""Between attempts to read a log that could not be read."""


class LedLog(CoordinatorLog, Protocol):
    """``led_partition.LedPartition``."""

    leader_epoch: LeaderEpoch

    @property
    def is_surely_led(self) -> bool:
        """Whether nobody else can have begun to lead it, so that what is remembered of it holds."""


class Shard(Protocol):
    """What is coordinated by one partition, while this broker leads it in one epoch."""

    name: str
    is_loading: bool

    async def load(self) -> None:
        """Read what the log knows; until then every request is to be tried again.

        Raises:
            KafkaError: it cannot be read now.
        """

    def end(self, error_code: int) -> None:
        """This broker leads no longer, or stops: whoever waits is told by ``error_code``."""


S = TypeVar("S", bound=Shard)


class LedShards(Generic[S]):
    """Of one coordinator. On the event loop alone."""

    def __init__(
        self,
        what: str,
        topic: str,
        partition_count: Callable[[], int],
        new_shard: Callable[[str, LedLog], S],
    ) -> None:
        """``what`` is coordinated, for messages. ``partition_count``: of the topic; 0: there is
        none yet. ``new_shard``: of the partition of that name and its log, not loaded.
        """
        self._what = what
        self._topic = topic
        self._partition_count = partition_count
        self._new_shard = new_shard
        self._shards: dict[int, S] = {}
        self._logs: dict[int, LedLog] = {}
        self._tasks = BackgroundTasks()

    def lead(self, partition: int, log: LedLog) -> None:
        """This broker leads that partition from now on; nothing happens if it did, in that epoch.

        A log of a later epoch is read again: others may have written in between.
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
        """This broker leads that partition no longer, if it ever did."""
        self._logs.pop(partition, None)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.end(errors_pb2.NOT_COORDINATOR)

    def led(self, partition: int) -> S | None:
        """What that partition coordinates, perhaps still loading; None: it is led elsewhere."""
        return self._shards.get(partition)

    async def close(self) -> None:
        """Whoever waits looks for another coordinator."""
        for partition in list(self._shards):
            self.resign(partition)
        await self._tasks.close()

    def of(self, name: str) -> S:
        """Where what is called ``name`` is.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        count = self._partition_count()
        if not count:
            raise KafkaError(
                errors_pb2.COORDINATOR_NOT_AVAILABLE,
                f"{self._what} {name!r}: {self._topic} does not exist yet; "
                "look for the coordinator",
            )
        partition = partition_of(name, count)
        shard = self._shards.get(partition)
        if shard is None or not self._logs[partition].is_surely_led:
            raise KafkaError(
                errors_pb2.NOT_COORDINATOR,
                f"{self._what} {name!r} is coordinated by another broker, or may be; look for it "
                "again",
            )
        if shard.is_loading:
            raise KafkaError(
                errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
                f"{self._what} {name!r}: its log is being read; try again",
            )
        return shard

    @property
    def is_loading(self) -> bool:
        """Whether there may be something here that it cannot tell of yet."""
        return any(shard.is_loading for shard in self._shards.values())

    def answering(self) -> Iterator[tuple[int, S]]:
        """Partitions of which this broker can tell everything now, and is sure to lead."""
        for partition, shard in tuple(self._shards.items()):
            if not shard.is_loading and self._logs[partition].is_surely_led:
                yield partition, shard

    @property
    def partition_count(self) -> int:
        """Of the topic; 0: there is none yet."""
        return self._partition_count()

    def __iter__(self) -> Iterator[S]:
        """Those that are loaded; partitions may come and go between any two of them."""
        return (shard for shard in tuple(self._shards.values()) if not shard.is_loading)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it done in the background, until ``close``."""
        self._tasks.start(work)

    async def _load(self, partition: int, shard: S) -> None:
        while self._shards.get(partition) is shard:
            try:
                await shard.load()
            except KafkaError as error:
                _log.error("%s cannot be read, trying again: %s", shard.name, error.message)
                await asyncio.sleep(_RETRY_S)
            else:
                return
