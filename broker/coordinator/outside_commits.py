"""Offsets committed to a group from outside, by readers that are no members: Spark.

Kafka's protocol has this too (a commit without a generation), but no condition in it: a reader that
was thought dead comes back, commits an older offset, and the group goes back. Every commit of a
group passes its coordinator, and there one commit from outside waits for the one before it: so here
"not below what is committed" is decided and written in one step.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol
from weakref import WeakValueDictionary

from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.groups.group import ConsumerGroup
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.read_tallies import ReadId, ReadTallies
from broker.errors import KafkaError
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

NOWHERE: Final = -1
"""In the place of an offset: none is committed."""

_MEMBERS_SHOWN: Final = 3


class Shard(Protocol):
    """``group_shard.GroupShard``."""

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        commits: Mapping[TopicPartition, CommittedOffset],
    ) -> int:
        """A Kafka error code for all of ``commits``; NONE: they are in the log."""

    def offsets(self, group_id: str) -> CommittedOffsets:
        """What the group has committed; empty if nobody knows it."""

    def group(self, group_id: str) -> ConsumerGroup | None:
        """None: nobody knows it."""


class Groups(Protocol):
    """``group_coordinator.GroupCoordinator``."""

    def shard_of(self, group_id: str) -> Shard:
        """Raises KafkaError: NOT_COORDINATOR, or one of those that pass."""


class OutsideCommits:
    """Of the groups that this broker coordinates. On the event loop alone."""

    def __init__(self, groups: Groups, wall_clock_ms: Callable[[], int]) -> None:
        self._groups = groups
        self._wall_clock_ms = wall_clock_ms
        self._tallies = ReadTallies()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def check(self, group_id: str) -> None:
        """Whether offsets may be committed from outside now.

        Raises:
            KafkaError: NON_EMPTY_GROUP; or whatever a coordinator sends one elsewhere with.
        """
        _require_no_members(group_id, self._groups.shard_of(group_id))

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, may_go_back: bool
    ) -> dict[TopicPartition, int]:
        """Where the group was before; what it is ahead of stays, unless it ``may_go_back``.

        Raises:
            KafkaError: as ``check``, or the log did not take it.
        """
        async with self._turns.setdefault(group_id, asyncio.Lock()):
            shard = self._groups.shard_of(group_id)
            _require_no_members(group_id, shard)
            committed = shard.offsets(group_id)
            before = {tp: _offset(committed.get(tp)) for tp in offsets}
            now_ms = self._wall_clock_ms()
            # What is committed already is committed again: it is still in use (KIP-211).
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
        """A part of a read was read; commits once all were. How many are still missing.

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


def _require_no_members(group_id: str, shard: Shard) -> None:
    group = shard.group(group_id)
    if group is None or not len(group.members):
        return
    members = [f"{each.client_id} at {each.client_host}" for each in group.members]
    shown = ", ".join(members[:_MEMBERS_SHOWN])
    more = f" and {len(members) - _MEMBERS_SHOWN} more" if len(members) > _MEMBERS_SHOWN else ""
    raise KafkaError(
        errors_pb2.NON_EMPTY_GROUP,
        f"group {group_id!r} has live members ({shown}{more}), and its offsets are theirs to "
        "commit: stop them, or choose another group",
    )
