"""The coordinator of consumer groups: which of them are here, and what becomes of each request."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.config.coordinator import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
)
from broker.coordinator.group_shard import GroupShard
from broker.coordinator.groups.basis import GroupLimits
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.groups.subscription import consumed_topics
from broker.coordinator.known_groups import KnownGroup
from broker.coordinator.led_shards import LedLog, LedShards
from broker.coordinator.log_entries import TransactionEnd
from broker.coordinator.shard_basis import ShardClock
from broker.coordinator.topics import OFFSETS_TOPIC
from broker.errors import KafkaError
from metadata_log.configuration import Values
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_MS_PER_MINUTE: Final = 60_000


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


class GroupCoordinator:
    """Of one broker. On the event loop alone."""

    def __init__(
        self,
        settings: GroupSettings,
        clock: ShardClock,
        partition_count: Callable[[str], int],
        new_id: Callable[[], str],
    ) -> None:
        """``partition_count``: of a topic, as far as this broker knows; 0: there is none.

        ``new_id``: random, for member ids.
        """
        self.settings = settings
        self._partition_count = partition_count
        self._missing: frozenset[TopicPartition] = frozenset()
        """Partitions with offsets here that did not exist when it was last looked."""
        self._new_id = new_id
        self._shards = LedShards(
            "group",
            OFFSETS_TOPIC,
            lambda: partition_count(OFFSETS_TOPIC),
            lambda name, log: GroupShard(name, log, settings.limits, clock),
        )

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for offsets that have expired."""
        self._shards.spawn(self._expire_for_ever())

    async def close(self) -> None:
        """As ``LedShards.close``."""
        await self._shards.close()

    def lead(self, partition: int, log: LedLog) -> None:
        """As ``LedShards.lead``."""
        self._shards.lead(partition, log)

    def resign(self, partition: int) -> None:
        """As ``LedShards.resign``."""
        self._shards.resign(partition)

    def end_transaction(self, partition: int, end: TransactionEnd) -> None:
        """A transaction's marker is in that partition's log for good."""
        shard = self._shards.led(partition)
        if shard is not None:
            shard.end_transaction(end)

    # -- requests --------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> GroupShard:
        """Where the group is; raises as ``LedShards.of``."""
        return self._shards.of(group_id)

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
        return self._shards.is_loading

    def groups(self) -> Iterator[ConsumerGroup]:
        """Those that are coordinated here."""
        return (known.group for known in self._known())

    def committed(self) -> Iterator[tuple[str, CommittedOffsets]]:
        """What the groups that are coordinated here have committed."""
        return ((known.group.group_id, known.offsets) for known in self._known())

    def _known(self) -> Iterator[KnownGroup]:
        """Groups may come and go between any two of them."""
        for shard in self._shards:
            yield from tuple(shard)

    # -- background ------------------------------------------------------------------------------

    def partitions_gone(self, gone: Mapping[str, int]) -> None:
        """Of these topics partitions were deleted, from that number on: whoever makes others in
        their place begins at their beginning."""

        def is_gone(tp: TopicPartition) -> bool:
            return tp.topic in gone and tp.partition >= gone[tp.topic]

        for shard in self._shards:
            self._shards.spawn(shard.forget_partitions(is_gone))

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.check_interval_ms / 1000)
            await self.expire_offsets()

    async def expire_offsets(self) -> None:
        """Forget what is too old, and what is committed of partitions that are not there.

        A deletion may have happened while nobody coordinated, or while an offset was on its way to
        the log. Missing once may be a broker that has not been told yet; one that has not been told
        for a whole interval leads nothing any more.
        """
        missing: set[TopicPartition] = set()
        for shard in self._shards:
            await shard.expire_offsets(self.settings.offsets_retention_ms, consumed_topics)
            absent = {tp for tp in shard.partitions() if not self._exists(tp)}
            missing |= absent
            gone = absent & self._missing
            if gone:
                await shard.forget_partitions(gone.__contains__)
        self._missing = frozenset(missing)

    def _exists(self, tp: TopicPartition) -> bool:
        return tp.partition < self._partition_count(tp.topic)
