"""Commits the offsets of reads that many tasks share, once every task has read its part.

A range may be split among tasks, and tasks end in any order. If the end of a later piece were
committed alone, the earlier pieces would be skipped. And nothing of a read that fails half-way may
become visible.

The state of a read is only in memory. A coordinator that takes over starts to count again, so the
read in progress may stay uncommitted; but no offset is ever ahead of what was read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_member import ConsumerMember
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator
from quorate.broker.coordinator.groups.group_shard import GroupShard
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.share.share_member import ShareMember
from quorate.broker.coordinator.groups.state.committed_offsets import CommittedOffset
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

READS_MAX: Final = 1_000
"""The number of reads that are remembered. Beyond it, the one that was silent for the longest time
is forgotten."""

PARTS_MAX: Final = 1_000_000
"""The largest number of parts of one read."""


class ReadId(NamedTuple):
    """The identity of a read; the planner of the read chooses ``read_id`` at random."""

    group_id: str
    read_id: bytes


class _Tally:
    def __init__(self, count: int) -> None:
        self.count = count
        self.reported: set[int] = set()
        self.ends: dict[TopicPartition, int] = {}


class ReadTallies:
    """Counts the reported parts of each read."""

    def __init__(self, reads_max: int = READS_MAX) -> None:
        self._reads_max = reads_max
        self._tallies: OrderedDict[ReadId, _Tally] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tallies)

    def report(
        self, read: ReadId, number: int, count: int, ends: Mapping[TopicPartition, int]
    ) -> int:
        """Record that part ``number`` of ``count`` has been read up to ``ends``; return how many
        are missing.

        A part may be reported again, because tasks are repeated.

        Raises:
            KafkaError: INVALID_REQUEST.
        """
        if not 0 <= number < count <= PARTS_MAX:
            raise _invalid(f"part {number} of {count}: there are 1 to {PARTS_MAX}, from 0 on")
        tally = self._tallies.setdefault(read, _Tally(count))
        if tally.count != count:
            raise _invalid(f"read {read.read_id.hex()} has {tally.count} parts, not {count}")
        self._tallies.move_to_end(read)
        while len(self._tallies) > self._reads_max:
            self._tallies.popitem(last=False)
        tally.reported.add(number)
        for tp, end in ends.items():
            tally.ends[tp] = max(end, tally.ends.get(tp, end))
        return count - len(tally.reported)

    def ends(self, read: ReadId) -> Mapping[TopicPartition, int]:
        """Return the ends of all reported parts together, by partition."""
        return self._tallies[read].ends

    def forget(self, read: ReadId) -> None:
        """Forget a read that is committed, or never will be."""
        self._tallies.pop(read, None)


def _invalid(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REQUEST, message)


# Offsets that readers outside the group, such as Spark, commit for it.
#
# Kafka's protocol has such commits too (a commit without a generation), but without a condition. A
# reader that was believed dead may come back and commit an older offset, and the group goes back.
# Every commit of a group passes through its coordinator, and here a commit from outside waits for
# the one before it. So "not below the committed offset" is decided and written in one step.


NOWHERE: Final = -1
"""Stands for the offset of a partition that has no committed offset."""

_MEMBERS_SHOWN: Final = 3


class ExternalCommits:
    """Commits offsets from outside for the groups of this broker. All methods run on the event
    loop."""

    def __init__(self, groups: GroupCoordinator, wall_clock_ms: Callable[[], int]) -> None:
        self._groups = groups
        self._wall_clock_ms = wall_clock_ms
        self._tallies = ReadTallies()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def check(self, group_id: str) -> None:
        """Check that offsets may be committed from outside now.

        Raises:
            KafkaError: NON_EMPTY_GROUP; or the error with which a coordinator redirects clients.
        """
        _require_no_members(group_id, self._groups.shard_of(group_id))

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, may_go_back: bool
    ) -> dict[TopicPartition, int]:
        """Commit offsets, and return those that were committed before.

        A lower offset than the committed one is not written, unless ``may_go_back`` is set.

        Raises:
            KafkaError: as ``check``, or the log did not accept the records.
        """
        async with self._turns.setdefault(group_id, asyncio.Lock()):
            shard = self._groups.shard_of(group_id)
            _require_no_members(group_id, shard)
            committed = shard.offsets(group_id)
            before = {tp: _offset(committed.get(tp)) for tp in offsets}
            now_ms = self._wall_clock_ms()
            # An offset that is already committed is committed again: it is still in use (KIP-211).
            commits = {
                tp: CommittedOffset(offset, committed_ms=now_ms)
                for tp, offset in offsets.items()
                if may_go_back or before[tp] <= offset
            }
            code = await shard.commit(group_id, "", None, NOWHERE, commits) if commits else 0
        if code:
            raise KafkaError(code, f"offsets of group {group_id!r} were not committed")
        return before

    async def commit_part(
        self,
        read: ReadId,
        number: int,
        count: int,
        ends: Mapping[TopicPartition, int],
        *,
        may_go_back: bool,
    ) -> int:
        """Record that a part was read, and commit once all parts were; return how many are still
        missing.

        Raises:
            KafkaError: as ``commit``; the part can be reported again.
        """
        self.check(read.group_id)
        missing = self._tallies.report(read, number, count, ends)
        if not missing:
            await self.commit(read.group_id, self._tallies.ends(read), may_go_back=may_go_back)
            self._tallies.forget(read)
        return missing


def _offset(commit: CommittedOffset | None) -> int:
    return NOWHERE if commit is None else commit.offset


def _require_no_members(group_id: str, shard: GroupShard) -> None:
    group = shard.group(group_id)
    if group is None or not len(group.members):
        return
    present = group.members.values() if isinstance(group, ShareGroup) else group.members
    clients = [
        each.metadata if isinstance(each, ConsumerMember | ShareMember) else each
        for each in present
    ]
    members = [f"{each.client_id} at {each.client_host}" for each in clients]
    shown = ", ".join(members[:_MEMBERS_SHOWN])
    more = f" and {len(members) - _MEMBERS_SHOWN} more" if len(members) > _MEMBERS_SHOWN else ""
    raise KafkaError(
        errors_pb2.NON_EMPTY_GROUP,
        f"group {group_id!r} has live members ({shown}{more}), and its offsets are theirs to "
        "commit: stop them, or choose another group",
    )
