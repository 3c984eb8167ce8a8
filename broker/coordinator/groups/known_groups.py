"""The groups of one partition, in the coordinator's memory and as read from the log."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from quorate.broker.coordinator.groups.consumer import consumer_log_format
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.stored_group import StoredConsumerGroup
from quorate.broker.coordinator.groups.consumer_group_parts import ConsumerGroupParts
from quorate.broker.coordinator.groups.consumer_group_work import ConsumerGroupWork
from quorate.broker.coordinator.groups.group_writes import GroupWrites
from quorate.broker.coordinator.groups.share import share_group_log_format
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.share.stored_share_group import StoredShareGroup
from quorate.broker.coordinator.groups.share_group_parts import ShareGroupParts
from quorate.broker.coordinator.groups.share_group_work import ShareGroupWork
from quorate.broker.coordinator.groups.state import group_log_format as log_format
from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffsets
from quorate.broker.coordinator.groups.state.group_basis import GroupLimits
from quorate.broker.coordinator.groups.state.group_log_format import (
    GroupKey,
    OffsetKey,
    StoredGroup,
    restored,
)
from quorate.broker.coordinator.shards.coordinator_records import (
    LogBatch,
    LogRecord,
    TransactionEnd,
    UnknownRecord,
)

_log: Final = logging.getLogger(__name__)


Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup


@dataclass(slots=True)
class KnownGroup:
    """A group with its committed offsets, and the wall-clock time of its last change."""

    group: Group
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    changed_at_ms: int = 0
    timer: asyncio.TimerHandle | None = None
    timer_at_ms: int = 0
    writes: GroupWrites | None = None
    """The writes of a share group, or of one that is, or was, of the consumer protocol."""
    work: ConsumerGroupWork | None = None
    """The work of a consumer group that takes time."""
    share_work: ShareGroupWork | None = None
    """The work of a share group that takes time."""

    def touch(self, now_wall_ms: int) -> None:
        """Record a change of the group."""
        self.changed_at_ms = now_wall_ms

    def set_timer(self, timer: asyncio.TimerHandle, at_ms: int) -> None:
        """Replace the group's timer by one that fires at ``at_ms``."""
        self.cancel_timer()
        self.timer, self.timer_at_ms = timer, at_ms

    def cancel_timer(self) -> None:
        """Cancel the timer, if there is one that has not fired."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def close(self) -> None:
        """Stop what goes on for the group, because it is coordinated elsewhere or deleted."""
        self.cancel_timer()
        if self.work is not None:
            self.work.close()
        if self.share_work is not None:
            self.share_work.close()

    @property
    def classic(self) -> ClassicGroup | None:
        """The group if it is of the classic protocol, or else None."""
        return self.group if isinstance(self.group, ClassicGroup) else None

    @property
    def is_forgotten(self) -> bool:
        """Return whether the group has no members and no offsets, so that it can be dropped."""
        return self.group.is_unused and not self.offsets


def group_tombstones(group: Group) -> list[LogRecord]:
    """Return the records that remove a group; its offsets stay."""
    if isinstance(group, ConsumerGroup):
        return group.all_tombstones()
    if isinstance(group, ShareGroup):
        return share_group_log_format.group_tombstones(group.group_id)
    return [LogRecord(log_format.encode_group_key(group.group_id), None)]


class OpenTransactions:
    """The groups that have pending offsets in a producer's open transaction."""

    def __init__(self) -> None:
        self._groups: dict[int, set[str]] = {}

    def add(self, producer_id: int, group_id: str) -> None:
        """Remember that the group waits for the end of that producer's transaction."""
        self._groups.setdefault(producer_id, set()).add(group_id)

    def end(
        self, end: TransactionEnd, offsets_of: Callable[[str], CommittedOffsets | None]
    ) -> None:
        """Tell the waiting groups of the end; offsets that were sent after it wait for another
        end."""
        for group_id in self._groups.pop(end.producer_id, ()):
            offsets = offsets_of(group_id)
            if offsets is not None:
                offsets.end(end)
                if offsets.pending.has_open(end.producer_id):
                    self.add(end.producer_id, group_id)


class GroupsInLog:
    """Collects the groups that a log describes, from its first record on; ``name`` is the
    partition."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept: dict[str, bytes] = {}
        self._consumer_groups: dict[str, StoredConsumerGroup] = {}
        self._share_groups: dict[str, StoredShareGroup] = {}
        self._offsets: dict[str, CommittedOffsets] = {}
        self.open = OpenTransactions()

    def take(self, entry: LogBatch | TransactionEnd) -> None:
        """Take the next entry of the log."""
        if isinstance(entry, TransactionEnd):
            self.open.end(entry, self._offsets.get)
            return
        for record in entry.records:
            try:
                self._take(record, entry)
            except UnknownRecord as error:
                _log.warning(
                    "%s: a record at offset %d is passed over: %s", self._name, entry.place, error
                )

    def _take(self, record: LogRecord, batch: LogBatch) -> None:
        if consumer_log_format.is_of_consumer_group(record.key):
            key = consumer_log_format.read_key(record.key)
            stored = self._consumer_groups.setdefault(key.group_id, StoredConsumerGroup())
            stored.take(key, record.value)
            return
        if share_group_log_format.is_of_share_group(record.key):
            share_key = share_group_log_format.read_key(record.key)
            share = self._share_groups.setdefault(share_key.group_id, StoredShareGroup())
            share.take(share_key, record.value)
            return
        match log_format.decode_key(record.key), record.value:
            case OffsetKey(group_id, tp), None:
                self._offsets_of(group_id).forget(tp, batch.place)
            case OffsetKey(group_id, tp), bytes(value):
                commit = log_format.decode_offset(value)
                offsets = self._offsets_of(group_id)
                if batch.producer_id is None:
                    offsets.record(tp, commit, batch.place)
                else:
                    offsets.pending.add(batch.producer_id, tp, commit, batch.place)
                    self.open.add(batch.producer_id, group_id)
            case GroupKey(group_id), None:
                self._kept.pop(group_id, None)
            case GroupKey(group_id), bytes(value):
                self._kept[group_id] = value

    def _offsets_of(self, group_id: str) -> CommittedOffsets:
        found = self._offsets.get(group_id)
        if found is None:
            found = self._offsets[group_id] = CommittedOffsets()
        return found

    def groups(
        self,
        limits: GroupLimits,
        parts: ConsumerGroupParts,
        share_parts: ShareGroupParts,
        now_ms: int,
    ) -> Iterator[KnownGroup]:
        """Return the groups that have members or offsets left, and the share groups."""
        for group_id, kept in self._share_groups.items():
            if kept.values:
                limits_of = share_parts.limits_of(group_id)
                yield KnownGroup(kept.group(group_id, limits_of, share_parts.topics, now_ms))
        for group_id, stored in self._consumer_groups.items():
            if stored.values:
                group = stored.group(group_id, parts.limits_of(group_id), parts.topics, now_ms)
                yield KnownGroup(group, self._offsets.pop(group_id, CommittedOffsets()))
                self._kept.pop(group_id, None)
        yield from self._classic_groups(limits, now_ms)

    def _classic_groups(self, limits: GroupLimits, now_ms: int) -> Iterator[KnownGroup]:
        for group_id in {**self._offsets, **self._kept}:
            value = self._kept.get(group_id)
            offsets = self._offsets_of(group_id)
            group = None if value is None else self._group(group_id, value)
            if group is None:
                known = KnownGroup(ClassicGroup(group_id, limits), offsets)
            else:
                restored_group = restored(group_id, group, limits, now_ms)
                known = KnownGroup(restored_group, offsets, group.changed_at_ms)
            if value is not None or not known.is_forgotten:
                yield known

    def _group(self, group_id: str, value: bytes) -> StoredGroup | None:
        try:
            return log_format.decode_group(value)
        except UnknownRecord as error:
            _log.warning("%s: group %s begins anew: %s", self._name, group_id, error)
            return None
