"""The groups of one partition, as a coordinator knows them and as its log has them."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.coordinator.groups import log_format
from broker.coordinator.groups.basis import GroupLimits, GroupState
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.log_format import GroupKey, OffsetKey
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.groups.stored import restored
from broker.coordinator.log_entries import LogBatch, LogRecord, TransactionEnd
from broker.coordinator.record_fields import UnknownRecord

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class KnownGroup:
    """A group, what it has committed, and when it last changed by the wall clock."""

    group: ConsumerGroup
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    changed_at_ms: int = 0
    timer: asyncio.TimerHandle | None = None
    timer_at_ms: int = 0

    @property
    def is_forgotten(self) -> bool:
        """Nothing is left that anybody could ask about."""
        no_members = self.group.state is GroupState.EMPTY and not self.group.members.pending
        return no_members and not self.offsets


class OpenTransactions:
    """Which groups have something to do when a producer's transaction ends."""

    def __init__(self) -> None:
        self._groups: dict[int, set[str]] = {}

    def add(self, producer_id: int, group_id: str) -> None:
        """The group waits for the end of that producer's transaction."""
        self._groups.setdefault(producer_id, set()).add(group_id)

    def end(
        self, end: TransactionEnd, offsets_of: Callable[[str], CommittedOffsets | None]
    ) -> None:
        """Have all of them told; what one has sent since then waits for another end."""
        for group_id in self._groups.pop(end.producer_id, ()):
            offsets = offsets_of(group_id)
            if offsets is not None:
                offsets.end(end)
                if offsets.pending.has_open(end.producer_id):
                    self.add(end.producer_id, group_id)


class GroupsInLog:
    """What a log says, from its beginning on; ``name`` is that of the partition."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept: dict[str, bytes] = {}
        self._offsets: dict[str, CommittedOffsets] = {}
        self.open = OpenTransactions()

    def take(self, entry: LogBatch | TransactionEnd) -> None:
        """The next one of the log."""
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

    def groups(self, limits: GroupLimits, now_ms: int) -> Iterator[KnownGroup]:
        """Those of which something is left."""
        for group_id in {**self._offsets, **self._kept}:
            value = self._kept.get(group_id)
            known = KnownGroup(ConsumerGroup(group_id, limits), self._offsets_of(group_id))
            if value is not None:
                self._take_back(known, value, limits, now_ms)
            if value is not None or not known.is_forgotten:
                yield known

    def _take_back(self, known: KnownGroup, value: bytes, limits: GroupLimits, now_ms: int) -> None:
        group_id = known.group.group_id
        try:
            group = log_format.decode_group(value)
        except UnknownRecord as error:
            _log.warning("%s: group %s begins anew: %s", self._name, group_id, error)
        else:
            known.group = restored(group_id, group, limits, now_ms)
            known.changed_at_ms = group.changed_at_ms
