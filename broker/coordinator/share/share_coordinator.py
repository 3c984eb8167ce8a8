"""``ShareCoordinator``: keeps the state of share-partitions in __share_group_state (KIP-932)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.internal_topics import SHARE_STATE_TOPIC
from quorate.broker.config.share_groups import (
    SHARE_COLD_PARTITION_SNAPSHOT_INTERVAL_MS,
    SHARE_COORDINATOR_WRITE_TIMEOUT_MS,
    SHARE_SNAPSHOT_UPDATE_RECORDS,
    SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS,
)
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.shards.partition_coordinator import PartitionCoordinator
from quorate.broker.coordinator.share.share_questions import Answer, Question
from quorate.broker.coordinator.share.share_state_shard import ShardSettings, ShareStateShard
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey
from quorate.common.configuration import Values
from quorate.common.types import TopicId
from quorate_proto.v1 import errors_pb2

DeleteRecords = Callable[[int, int], Awaitable[None]]
"""Deletes the records of a partition of __share_group_state before an offset."""


class ShareCoordinatorSettings(NamedTuple):
    """The configuration of the share coordinator; see ``quorate.broker.config.share_groups``."""

    shard: ShardSettings
    prune_interval_ms: int
    write_timeout_ms: int

    @classmethod
    def of(cls, config: Values) -> "ShareCoordinatorSettings":
        return cls(
            ShardSettings(
                config[SHARE_SNAPSHOT_UPDATE_RECORDS],
                config[SHARE_COLD_PARTITION_SNAPSHOT_INTERVAL_MS],
            ),
            config[SHARE_STATE_TOPIC_PRUNE_INTERVAL_MS],
            config[SHARE_COORDINATOR_WRITE_TIMEOUT_MS],
        )


class ShareCoordinator(PartitionCoordinator[ShareStateShard]):
    """The share coordinator of one broker. All methods run on the event loop."""

    def __init__(
        self,
        settings: ShareCoordinatorSettings,
        topics: Topics,
        partition_count: Callable[[str], int],
        wall_ms: Callable[[], int],
        delete_records: DeleteRecords,
    ) -> None:
        """``partition_count`` returns the partitions of a topic, 0 if this broker knows none."""
        super().__init__("share-partition", SHARE_STATE_TOPIC, partition_count)
        self.settings: Final = settings
        self._topics = topics
        self._wall_ms = wall_ms
        self._delete_records = delete_records
        self._missing: frozenset[TopicId] = frozenset()
        """The topics that did not exist at the last check."""

    def _new_shard(self, name: str, log: LedPartition) -> ShareStateShard:
        return ShareStateShard(name, log, self.settings.shard, self._wall_ms)

    def start(self) -> None:
        """Start to delete what is not needed any more."""
        self.spawn(self._maintain_for_ever())

    async def ask(self, question: Question) -> Answer:
        """Answer a question. It does not raise."""
        try:
            shard = self.shard_of(question.key.coordinated_name)
            self._check_exists(question.key)
            return await shard.ask(question)
        except KafkaError as error:
            return Answer(error.code, error.message)

    async def ask_all(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Answer questions. What they change is decided in order."""
        return await asyncio.gather(*map(self.ask, questions))

    def _check_exists(self, key: SharePartitionKey) -> None:
        name = self._topics.topic_name(key.topic_id)
        topic = None if name is None else self._topics.topic(name)
        if topic is None or not 0 <= key.partition < topic.partition_count:
            raise KafkaError(
                errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {key.partition} of topic {key.topic_text}",
            )

    # -- background ------------------------------------------------------------------------------

    async def _maintain_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.prune_interval_ms / 1000)
            await self.maintain()

    async def maintain(self) -> None:
        """Forget share-partitions of topics that are gone, and delete what is not needed.

        Before the broker was told of the cluster, all topics seem to be gone.
        """
        await self._topics.until_known()
        missing: set[TopicId] = set()
        for partition, shard in tuple(self.answering()):
            absent = {one for one in shard.topic_ids() if self._topics.topic_name(one) is None}
            missing |= absent
            try:
                await shard.forget_topics(absent & self._missing)
                await shard.refresh_cold()
            except KafkaError:
                continue
            if len(shard):
                await self._delete_records(partition, shard.needed_from(0))
        self._missing = frozenset(missing)
