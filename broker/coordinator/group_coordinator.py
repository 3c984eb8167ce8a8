"""The coordinator of consumer groups: which of them are here, and what becomes of each request.

A group belongs to one partition of __consumer_offsets, by its name, and whoever leads that
partition coordinates it. What it knows is in that log and nowhere else: a new leader reads it
before it answers.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, NamedTuple, Protocol

from broker.config.coordinator import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
)
from broker.coordinator.appends import CoordinatorLog
from broker.coordinator.group_shard import GroupShard, KnownGroup, ShardClock
from broker.coordinator.groups.basis import GroupLimits
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.groups.subscription import consumed_topics
from broker.coordinator.topics import OFFSETS_TOPIC
from broker.errors import KafkaError
from metadata_log.configuration import Values
from metadata_log.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)

_MS_PER_MINUTE: Final = 60_000
_RETRY_S: Final = 1.0
"""Between attempts to read a log that could not be read."""


class GroupSettings(NamedTuple):
    """What is configured for groups; see ``broker.config.coordinator``."""

    limits: GroupLimits
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    offsets_retention_ms: int
    check_interval_ms: int
    commit_timeout_ms: int

    @classmethod
    def of(cls, config: Values) -> "GroupSettings":
        return cls(
            GroupLimits(config[GROUP_MAX_SIZE], config[GROUP_INITIAL_REBALANCE_DELAY_MS]),
            config[GROUP_MIN_SESSION_TIMEOUT_MS],
            config[GROUP_MAX_SESSION_TIMEOUT_MS],
            config[OFFSETS_RETENTION_MINUTES] * _MS_PER_MINUTE,
            config[OFFSETS_RETENTION_CHECK_INTERVAL_MS],
            config[OFFSETS_COMMIT_TIMEOUT_MS],
        )


class OffsetsPartition(CoordinatorLog, Protocol):
    """``led_partition.LedPartition``."""

    leader_epoch: LeaderEpoch


class GroupCoordinator:
    """Of one broker. On the event loop alone."""

    def __init__(
        self,
        settings: GroupSettings,
        clock: ShardClock,
        partition_count: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        """``partition_count``: of __consumer_offsets; 0: there is none yet.

        ``new_id``: random, for member ids.
        """
        self.settings = settings
        self._clock = clock
        self._partition_count = partition_count
        self._new_id = new_id
        self._shards: dict[int, GroupShard] = {}
        self._epochs: dict[int, LeaderEpoch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._expiry = asyncio.get_running_loop().create_task(self._expire_for_ever())

    async def close(self) -> None:
        """Whoever waits looks for another coordinator."""
        if self._expiry is not None:
            self._expiry.cancel()
        for partition in list(self._shards):
            self.resign(partition)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead(self, partition: int, log: OffsetsPartition) -> None:
        """This broker leads that partition from now on; nothing happens if it did, in that epoch.

        A log of a later epoch is read again: others may have written in between.
        """
        if self._epochs.get(partition) == log.leader_epoch:
            return
        self.resign(partition)
        shard = GroupShard(f"{OFFSETS_TOPIC}-{partition}", log, self.settings.limits, self._clock)
        self._shards[partition] = shard
        self._epochs[partition] = log.leader_epoch
        self._spawn(self._load(partition, shard))

    def resign(self, partition: int) -> None:
        """This broker leads that partition no longer, if it ever did."""
        self._epochs.pop(partition, None)
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.end(errors_pb2.NOT_COORDINATOR)

    # -- requests --------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> GroupShard:
        """Where the group is.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        count = self._partition_count()
        if not count:
            raise KafkaError(
                errors_pb2.COORDINATOR_NOT_AVAILABLE,
                f"group {group_id!r}: {OFFSETS_TOPIC} does not exist yet; look for the coordinator",
            )
        shard = self._shards.get(partition_of(group_id, count))
        if shard is None:
            raise KafkaError(
                errors_pb2.NOT_COORDINATOR,
                f"group {group_id!r} is coordinated by another broker; look for it again",
            )
        if shard.is_loading:
            raise KafkaError(
                errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
                f"group {group_id!r}: its log is being read; try again",
            )
        return shard

    def check_session_timeout(self, group_id: str, session_timeout_ms: int) -> None:
        """Raises: KafkaError: INVALID_SESSION_TIMEOUT."""
        least, most = self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms
        if not least <= session_timeout_ms <= most:
            raise KafkaError(
                errors_pb2.INVALID_SESSION_TIMEOUT,
                f"group {group_id!r}: session.timeout.ms={session_timeout_ms} must be from {least} "
                f"(group.min.session.timeout.ms) to {most} (group.max.session.timeout.ms)",
            )

    def new_member_id(self, prefix: str) -> str:
        """An id that nobody has had: the client's or instance's name, for people, and chance."""
        return f"{prefix}-{self._new_id()}"

    @property
    def is_loading(self) -> bool:
        """Whether there may be groups here that it cannot tell of yet."""
        return any(shard.is_loading for shard in self._shards.values())

    def groups(self) -> Iterator[ConsumerGroup]:
        """Those that are coordinated here."""
        return (known.group for known in self._known())

    def committed(self) -> Iterator[tuple[str, CommittedOffsets]]:
        """What the groups that are coordinated here have committed."""
        return ((known.group.group_id, known.offsets) for known in self._known())

    def _known(self) -> Iterator[KnownGroup]:
        """Groups and partitions may come and go between any two of them."""
        for shard in tuple(self._shards.values()):
            yield from tuple(shard)

    # -- background ------------------------------------------------------------------------------

    async def _load(self, partition: int, shard: GroupShard) -> None:
        while self._shards.get(partition) is shard:
            try:
                await shard.load()
            except KafkaError as error:
                _log.error("%s cannot be read, trying again: %s", shard.name, error.message)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.check_interval_ms / 1000)
            for shard in list(self._shards.values()):
                if not shard.is_loading:
                    await shard.expire_offsets(self.settings.offsets_retention_ms, consumed_topics)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def partition_of(group_id: str, partition_count: int) -> int:
    """As Kafka has it: Java's hash code of the name, without its sign."""
    code = 0
    for unit in memoryview(group_id.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = (31 * code + unit) & 0xFFFF_FFFF
    return (code & 0x7FFF_FFFF) % partition_count
