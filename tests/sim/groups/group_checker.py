"""The promises of consumer groups, judged by what the members of a run were told."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from quorate.common.types import TopicIdPartition
from tests.sim.world import Violation, World

if TYPE_CHECKING:
    from tests.sim.groups.member import Member

CLOCK_MARGIN: Final = 0.9
"""The part of a session that has surely not passed at the coordinator, whose clock may be fast."""


class GroupChecker:
    """Knows who has which partition, and what was committed."""

    def __init__(self, world: World, session_s: float, is_lossy: Callable[[], bool]) -> None:
        """``is_lossy`` returns whether a loss of what the coordinator wrote was accepted."""
        self._world = world
        self._session_s = session_s
        self._is_lossy = is_lossy
        self.members: list[Member] = []
        self._committed: dict[TopicIdPartition, int] = {}
        self.assignments = 0
        self.commits = 0

    def takes(self, member: "Member", tip: TopicIdPartition) -> None:
        """Check that nobody else has a partition that a member was given.

        Another member has it until it gives it up, or until its session may have ended: the
        coordinator has not answered a heartbeat that it sent within the last session timeout.

        Raises:
            Violation: two members have it.
        """
        self.assignments += 1
        for other in self.members:
            if other is member or tip not in other.owned or self._is_lossy():
                continue
            silent_s = self._world.now - other.heard_s
            if silent_s < CLOCK_MARGIN * self._session_s:
                raise Violation(
                    f"{member.member_id} was given {tip.partition}, which {other.member_id} has; "
                    f"the coordinator answered what that member sent {silent_s:.3f} s ago"
                )

    def committed(self, tip: TopicIdPartition, offset: int) -> None:
        """Take note of a commit that was acknowledged."""
        self.commits += 1
        self._committed[tip] = max(offset, self.least(tip))

    def least(self, tip: TopicIdPartition) -> int:
        """Return the least offset that may be fetched from now on."""
        return self._committed.get(tip, 0)

    def fetched(self, tip: TopicIdPartition, offset: int, least: int) -> None:
        """Check a committed offset. ``least`` is that of when it was asked for.

        Raises:
            Violation: commits went back.
        """
        if offset < least and not self._is_lossy():
            raise Violation(
                f"the committed offset of {tip.partition} is {offset}; {least} was acknowledged"
            )
        self._committed[tip] = max(offset, self.least(tip))

    def trouble(self, partitions: frozenset[TopicIdPartition]) -> str | None:
        """Say what is missing until each partition has one owner, or return None."""
        owners: dict[TopicIdPartition, int] = dict.fromkeys(partitions, 0)
        for member in self.members:
            for tip in member.owned:
                owners[tip] = owners.get(tip, 0) + 1
        wrong = sorted(tip.partition for tip, count in owners.items() if count != 1)
        return f"partitions {wrong} of the group have not one owner each" if wrong else None
