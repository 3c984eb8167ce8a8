"""The group coordinator of one broker: its groups, and their background work."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.coordinator import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
)
from quorate.broker.config.internal_topics import OFFSETS_TOPIC
from quorate.broker.coordinator.groups.consumer_group_parts import ConsumerGroupParts
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.known_groups import Group, KnownGroup
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.groups.share_group_parts import ShareGroupParts
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffsets
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits
from quorate.broker.coordinator.groups.subscriptions import consumed_topics
from quorate.broker.coordinator.shards.coordinator_records import TransactionEnd
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.shards.partition_coordinator import PartitionCoordinator
from quorate.common.configuration import Values
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_MS_PER_MINUTE: Final = 60_000


class GroupSettings(NamedTuple):
    """The configuration of the group coordinator; see ``quorate.broker.config.coordinator``."""

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


class GroupCoordinator(PartitionCoordinator[GroupShard]):
    """The group coordinator of one broker. All methods run on the event loop."""

    def __init__(
        self,
        settings: GroupSettings,
        clock: ShardClock,
        partition_count: Callable[[str], int],
        new_id: Callable[[], str],
        consumer_parts: ConsumerGroupParts,
        share_parts: ShareGroupParts,
    ) -> None:
        """``partition_count`` returns the partitions of a topic, 0 if this broker knows none.

        ``new_id`` returns a random text for member ids.
        """
        super().__init__("group", OFFSETS_TOPIC, partition_count)
        self.settings = settings
        self._clock = clock
        self.consumer_parts = consumer_parts
        self.share_parts = share_parts
        self._missing: frozenset[TopicPartition] = frozenset()
        """Partitions with committed offsets that did not exist at the last check."""
        self._new_id = new_id

    def _new_shard(self, name: str, log: LedPartition) -> GroupShard:
        return GroupShard(
            name,
            log,
            self.settings.limits,
            self._clock,
            self.consumer_parts,
            self.share_parts,
        )

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic search for expired offsets."""
        self.spawn(self._expire_for_ever())

    def end_transaction(self, partition: int, end: TransactionEnd) -> None:
        """Commit or drop the pending offsets of a transaction whose marker is committed."""
        shard = self.shard_in(partition)
        if shard is not None:
            shard.end_transaction(end)

    # -- requests --------------------------------------------------------------------------------

    def check_session_timeout(self, group_id: str, session_timeout_ms: int) -> None:
        """Check a session timeout against the configured limits.

        Raises:
            KafkaError: INVALID_SESSION_TIMEOUT.
        """
        least, most = self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms
        if not least <= session_timeout_ms <= most:
            raise KafkaError(
                errors_pb2.INVALID_SESSION_TIMEOUT,
                f"group {group_id!r}: session.timeout.ms={session_timeout_ms} must be from {least} "
                f"(group.min.session.timeout.ms) to {most} (group.max.session.timeout.ms)",
            )

    def new_member_id(self, prefix: str) -> str:
        """Return a new unique member id: the name of the client or instance, and a random part."""
        return f"{prefix}-{self._new_id()}"

    def new_id(self) -> str:
        """Return a new random text."""
        return self._new_id()

    def groups(self) -> Iterator[Group]:
        """Return the groups that this broker coordinates."""
        return (known.group for known in self._known())

    def committed(self) -> Iterator[tuple[str, CommittedOffsets]]:
        """Return the committed offsets of the groups that this broker coordinates."""
        return ((known.group.group_id, known.offsets) for known in self._known())

    def _known(self) -> Iterator[KnownGroup]:
        """Yield all groups; groups may come and go while they are iterated."""
        for shard in self.loaded_shards():
            yield from tuple(shard)

    # -- background ------------------------------------------------------------------------------

    def partitions_gone(self, gone: Mapping[str, int]) -> None:
        """Forget the offsets of deleted partitions.

        ``gone`` has the number of the first deleted partition of each topic. Consumers of
        partitions that are created in their place start at the beginning.
        """

        def is_gone(tp: TopicPartition) -> bool:
            return tp.topic in gone and tp.partition >= gone[tp.topic]

        for shard in self.loaded_shards():
            self.spawn(shard.forget_partitions(is_gone))

    def topics_changed(self, names: Collection[str]) -> None:
        """Tell the consumer groups of topics that were created, deleted or have grown (KIP-848)."""
        for shard in self.loaded_shards():
            self.spawn(shard.topics_changed(names))

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.check_interval_ms / 1000)
            await self.expire_offsets()

    async def expire_offsets(self) -> None:
        """Forget offsets that are too old, and offsets of partitions that do not exist.

        A partition may have been deleted while the group had no coordinator, or while an offset was
        being written to the log. If a partition is missing once, this broker may only not know it
        yet. A broker that lacks the metadata for a whole interval leads nothing any more.
        """
        missing: set[TopicPartition] = set()
        for shard in self.loaded_shards():
            await shard.expire_offsets(self.settings.offsets_retention_ms, consumed_topics)
            absent = {tp for tp in shard.partitions() if not self._exists(tp)}
            missing |= absent
            gone = absent & self._missing
            if gone:
                await shard.forget_partitions(gone.__contains__)
        self._missing = frozenset(missing)

    def _exists(self, tp: TopicPartition) -> bool:
        return tp.partition < self._partition_count(tp.topic)
