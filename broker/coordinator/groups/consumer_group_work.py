"""The work of one consumer group that takes time: its next target assignment, and the topics that
its regular expressions match."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.regular_expressions import (
    ResolvedRegex,
    matching_topics,
)
from quorate.broker.coordinator.groups.consumer.target_assignment import Assignor
from quorate.broker.coordinator.groups.consumer_group_parts import ConsumerGroupParts
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.common.background_tasks import BackgroundTasks
from quorate_proto.v1 import errors_pb2

REGEX_REFRESH_MIN_MS: Final = 10_000
"""The least time between two looks for topics that regular expressions match (KIP-848)."""

VisibleTopics: TypeAlias = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns those of the topics that the client of a member may see."""


class ConsumerGroupWork:
    """The work of one group. All methods run on the event loop."""

    def __init__(
        self,
        group: ConsumerGroup,
        parts: ConsumerGroupParts,
        clock: ShardClock,
        carry_out: Callable[[Callable[[], list[LogRecord]]], None],
    ) -> None:
        """``carry_out`` calls a method of the group, and writes the records that it returns."""
        self._group = group
        self._parts = parts
        self._clock = clock
        self._carry_out = carry_out
        self._tasks = BackgroundTasks()
        self._assigning: asyncio.Task[None] | None = None
        self._next_target_ms = 0
        self._resolving: asyncio.Task[None] | None = None
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._refreshed_ms: int | None = None
        self._visible: VisibleTopics | None = None
        """The rights of the member that heartbeated last."""

    def close(self) -> None:
        """Stop, because another broker coordinates the group, or it is deleted."""
        self._tasks.cancel()
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()

    # -- the target assignment ---------------------------------------------------------------------

    def assign_if_needed(self) -> None:
        """Begin to make a target assignment if the group needs one and none is being made."""
        if self._group.needs_target and self._assigning is None:
            self._assigning = self._tasks.start(self._assign())

    async def until_assigned(self, epoch: int) -> None:
        """Return when the target assignment is of that group epoch, or of a later one.

        Raises:
            KafkaError: NOT_COORDINATOR.
        """
        while self._group.needs_target and self._group.target_epoch < epoch:
            self.assign_if_needed()
            await _end_of(self._assigning)

    async def _assign(self) -> None:
        try:
            wait_ms = max(0, self._next_target_ms - self._clock.now_ms())
            await asyncio.sleep(wait_ms / 1000)
            new = await self._parts.turns.carry_out(self._group.new_target(self._assignor()))
            interval_ms = self._group.limits.assignment_interval_ms
            self._next_target_ms = self._clock.now_ms() + interval_ms
            wall_ms = self._clock.wall_ms()
            self._carry_out(lambda: self._group.take_target(new, wall_ms))
        finally:
            self._assigning = None
        self.assign_if_needed()

    def _assignor(self) -> Assignor:
        assignors = self._parts.assignors
        preferred = self._group.members.preferred_assignor()
        return assignors.get(preferred or "") or next(iter(assignors.values()))

    # -- regular expressions -----------------------------------------------------------------------

    async def until_resolved(self, regex: str, visible: VisibleTopics) -> None:
        """Return when it is known which topics match a regular expression, among those that the
        client of the member may see.

        Raises:
            KafkaError: NOT_COORDINATOR.
        """
        self._visible = visible
        group = self._group
        while regex in group.members.topic_regexes and regex not in group.regexes:
            if self._resolving is None:
                self._start_resolving(group.unresolved_regexes, visible)
            await _end_of(self._resolving)

    def heard_of(self, visible: VisibleTopics) -> None:
        """Take the rights of a member that heartbeats, and look for matching topics again if that
        was long ago: topics or rights may have changed."""
        self._visible = visible
        last_ms = self._refreshed_ms
        interval_ms = self._parts.regex_refresh_interval_ms
        if last_ms is None or self._clock.now_ms() >= last_ms + interval_ms:
            self.refresh_soon()

    def refresh_soon(self) -> None:
        """Look for matching topics again, because there are new ones."""
        if self._refresh_timer is not None or not self._group.members.topic_regexes:
            return
        last_ms = self._refreshed_ms
        due_ms = 0 if last_ms is None else last_ms + REGEX_REFRESH_MIN_MS
        wait_s = max(0, due_ms - self._clock.now_ms()) / 1000
        self._refresh_timer = asyncio.get_running_loop().call_later(wait_s, self._refresh)

    def _refresh(self) -> None:
        self._refresh_timer = None
        if self._resolving is not None:
            self._resolving.add_done_callback(lambda _: self.refresh_soon())
        elif self._visible is not None:
            self._start_resolving(list(self._group.members.topic_regexes), self._visible)

    def _start_resolving(self, regexes: list[str], visible: VisibleTopics) -> None:
        self._resolving = self._tasks.start(self._resolve(regexes, visible))

    async def _resolve(self, regexes: list[str], visible: VisibleTopics) -> None:
        """Find out which topics match, and begin another epoch if they are others than before."""
        topics = self._parts.topics
        version, now_ms = topics.metadata_offset, self._clock.now_ms()
        try:
            names = tuple(topics.topics)
            found = await self._parts.turns.carry_out(matching_topics(regexes, names))
            seen = frozenset(await visible(frozenset[str]().union(*found.values())))
            wall_ms = self._clock.wall_ms()
            resolved = {
                regex: ResolvedRegex(matched & seen, version, wall_ms)
                for regex, matched in found.items()
            }
            if self._group.members.topic_regexes.keys() <= found.keys():
                self._refreshed_ms = now_ms
            self._carry_out(lambda: self._group.take_resolved(resolved))
        finally:
            self._resolving = None


async def _end_of(task: "asyncio.Task[None] | None") -> None:
    """Wait for a task that others may wait for, too.

    Raises:
        KafkaError: it did not come to its end.
    """
    if task is None:
        return
    await asyncio.wait([task])
    if task.cancelled():
        raise KafkaError(errors_pb2.NOT_COORDINATOR, "the group is coordinated elsewhere")
    task.result()
