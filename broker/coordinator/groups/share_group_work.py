"""The work of one share group that takes time: having states of partitions initialized, and the
next target assignment."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.group_writes import GroupWrites
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.share.share_topics import TopicPartitions
from quorate.broker.coordinator.groups.share_group_parts import ShareGroupParts
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.coordinator.share.share_questions import Delete, Initialize
from quorate.broker.coordinator.share.share_states import why_failed
from quorate.broker.coordinator.share.state.stored_state import UNKNOWN_START, SharePartitionKey
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.types import TopicId

_log: Final = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""The pause before states are initialized again that could not be."""
JOIN_PATIENCE_S: Final = 3.0
"""How long a member that joins waits for partitions; then it gets them with a later heartbeat."""


class ShareGroupWork:
    """The work of one group. All methods run on the event loop."""

    def __init__(
        self,
        group: ShareGroup,
        parts: ShareGroupParts,
        clock: ShardClock,
        writes: GroupWrites,
        carry_out: Callable[[Callable[[], list[LogRecord]]], None],
    ) -> None:
        """``carry_out`` calls a method of the group, and writes the records that it returns."""
        self._group = group
        self._parts = parts
        self._clock = clock
        self._writes = writes
        self._carry_out = carry_out
        self._tasks = BackgroundTasks()
        self._initializing: asyncio.Task[None] | None = None
        self._assigning: asyncio.Task[None] | None = None
        self._next_target_ms = 0

    def close(self) -> None:
        """Stop, because another broker coordinates the group, or it is deleted."""
        self._tasks.cancel()

    def begin_if_needed(self) -> None:
        """Begin what the group needs and what has not begun."""
        group = self._group
        if group.is_empty:
            return
        if self._initializing is None and group.uninitialized()[0]:
            self._initializing = self._tasks.start(self._initialize())
        if self._assigning is None and group.needs_target:
            self._assigning = self._tasks.start(self._assign())

    async def until_assigned(self) -> None:
        """Return when the partitions that can be assigned are, or after a while."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + JOIN_PATIENCE_S
        while (left_s := until_s - loop.time()) > 0:
            running = [one for one in (self._initializing, self._assigning) if one is not None]
            if not running:
                return
            await asyncio.wait(running, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    # -- states ----------------------------------------------------------------------------------

    async def _initialize(self) -> None:
        """Have the states of partitions initialized that members are subscribed to."""
        try:
            while not self._group.is_empty:
                missing, names = self._group.uninitialized()
                if not missing or await self._initialize_or_tell(missing, names):
                    break
                await asyncio.sleep(RETRY_S)
        finally:
            self._initializing = None
        self.begin_if_needed()

    async def _initialize_or_tell(
        self, missing: TopicPartitions, names: Mapping[TopicId, str]
    ) -> bool:
        try:
            return await self._initialize_states(missing, names)
        except KafkaError as error:
            group_id = self._group.group_id
            _log.info("share group %s cannot begin with partitions now: %s", group_id, error)
            return False

    async def _initialize_states(
        self, missing: TopicPartitions, names: Mapping[TopicId, str]
    ) -> bool:
        group = self._group
        self._carry_out(lambda: group.set_topics(group.topics.begin(missing, names)))
        await self._writes.until_written()
        keys = list(_keys(group.group_id, missing))
        questions = [Initialize(key, group.epoch, UNKNOWN_START) for key in keys]
        answers = await self._parts.states.ask_all(questions)
        done: dict[TopicId, set[int]] = {}
        failed = ""
        for key, answer in zip(keys, answers, strict=True):
            if answer.error_code:
                failed = why_failed(answer)
            else:
                done.setdefault(key.topic_id, set()).add(key.partition)
        if done:
            found = {topic_id: frozenset(own) for topic_id, own in done.items()}
            self._carry_out(lambda: group.set_topics(group.topics.done(found), reassign=True))
        if failed:
            _log.info("share group %s cannot begin with all partitions: %s", group.group_id, failed)
        return not failed

    async def initialize_at(
        self, offsets: Mapping[SharePartitionKey, int]
    ) -> dict[SharePartitionKey, tuple[int, str]]:
        """Have the states of partitions begin again at these offsets; return an error code and a
        message for each."""
        group = self._group
        wanted = _by_topic(offsets)
        topics = self._parts.topics
        names = {topic_id: topics.topic_name(topic_id) or "" for topic_id in wanted}
        self._carry_out(lambda: group.set_topics(group.topics.begin(wanted, names), reassign=True))
        await self._writes.until_written()
        questions = [Initialize(key, group.epoch, offset) for key, offset in offsets.items()]
        answers = await self._parts.states.ask_all(questions)
        outcomes = dict(zip(offsets, answers, strict=True))
        done = _by_topic(key for key, answer in outcomes.items() if not answer.error_code)
        self._carry_out(lambda: group.set_topics(group.topics.done(done)))
        await self._writes.until_written()
        return {key: (one.error_code, one.error_message) for key, one in outcomes.items()}

    async def delete_states(self, topic_ids: Iterable[TopicId]) -> dict[TopicId, tuple[int, str]]:
        """Have the states of topics deleted; return an error code and a message for each."""
        group, gone = self._group, frozenset(topic_ids)
        keys = list(_keys(group.group_id, self._all_partitions(gone)))
        self._carry_out(lambda: group.set_topics(group.topics.remove(gone), reassign=True))
        await self._writes.until_written()
        answers = await self._parts.states.ask_all([Delete(key) for key in keys])
        failed = {
            key.topic_id: (answer.error_code, answer.error_message)
            for key, answer in zip(keys, answers, strict=True)
            if answer.error_code
        }
        done = gone - failed.keys()
        self._carry_out(lambda: group.set_topics(group.topics.removed(done)))
        await self._writes.until_written()
        return {topic_id: failed.get(topic_id, (0, "")) for topic_id in gone}

    def _all_partitions(self, topic_ids: Iterable[TopicId]) -> TopicPartitions:
        """Return the partitions that there may be a state of. Those of a deleted topic, the share
        coordinator forgets by itself."""
        found: dict[TopicId, frozenset[int]] = {}
        for topic_id in topic_ids:
            name = self._parts.topics.topic_name(topic_id)
            topic = None if name is None else self._parts.topics.topic(name)
            if topic is not None:
                found[topic_id] = frozenset(range(topic.partition_count))
        return found

    # -- the target assignment ---------------------------------------------------------------------

    async def _assign(self) -> None:
        try:
            if self._initializing is not None:
                await asyncio.wait([self._initializing], timeout=JOIN_PATIENCE_S)
            wait_ms = max(0, self._next_target_ms - self._clock.now_ms())
            await asyncio.sleep(wait_ms / 1000)
            new = await self._parts.turns.carry_out(self._group.new_target())
            interval_ms = self._parts.limits_of(self._group.group_id)().assignment_interval_ms
            self._next_target_ms = self._clock.now_ms() + interval_ms
            wall_ms = self._clock.wall_ms()
            self._carry_out(lambda: self._group.take_target(new, wall_ms))
        finally:
            self._assigning = None
        self.begin_if_needed()


def _keys(group_id: str, partitions: TopicPartitions) -> Iterable[SharePartitionKey]:
    for topic_id, own in partitions.items():
        for partition in sorted(own):
            yield SharePartitionKey(group_id, topic_id, partition)


def _by_topic(keys: Iterable[SharePartitionKey]) -> TopicPartitions:
    found: dict[TopicId, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(own) for topic_id, own in found.items()}
