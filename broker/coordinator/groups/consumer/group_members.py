"""The members of a consumer group, which of them owns a partition, and what they subscribe to."""

from collections import Counter
from collections.abc import Iterable, Iterator

from quorate.broker.coordinator.groups.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
)
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import TopicId


class GroupMembers:
    """The members of one group, by their ids.

    Everything that can be asked about all members is counted as they change, because a group may
    have thousands of them.
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._by_id: dict[str, ConsumerMember] = {}
        self._static_ids: dict[str, str] = {}
        self._owners: dict[tuple[TopicId, int], str] = {}
        self._stable_at: Counter[int] = Counter()
        """The number of stable members in each epoch."""
        self.topic_names: Counter[str] = Counter()
        """The topics that members subscribe to by name, with the number of these members."""
        self.topic_regexes: Counter[str] = Counter()
        """The regular expressions that members subscribe to, with the number of these members."""
        self._assignors: Counter[str] = Counter()
        self._classic_count = 0
        self._classic_protocols: Counter[str] = Counter()
        """The protocols of the members of the classic protocol, with the number of these
        members."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def get(self, member_id: str) -> ConsumerMember | None:
        """Return the member with that id, or None if the group has no such member."""
        return self._by_id.get(member_id)

    def static(self, instance_id: str) -> ConsumerMember | None:
        """Return the static member with that instance id, or None."""
        return self._by_id.get(self._static_ids.get(instance_id, ""))

    def owner(self, topic_id: TopicId, partition: int) -> str | None:
        """Return the member that owns a partition, or None if it is free."""
        return self._owners.get((topic_id, partition))

    def all_stable_at(self, epoch: int) -> bool:
        """Return whether all members have what they are to have in that epoch."""
        return self._stable_at[epoch] == len(self._by_id)

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members ask for, or None if none does."""
        return max(self._assignors, key=lambda name: (self._assignors[name], name), default=None)

    @property
    def all_classic(self) -> bool:
        """Whether there are members, and all of them use the classic protocol."""
        return self._classic_count == len(self._by_id) > 0

    def supports_any(self, names: Iterable[str], without: ConsumerMember | None) -> bool:
        """Return whether all members of the classic protocol, except ``without``, support one of
        those protocols."""
        classic = None if without is None else without.metadata.classic
        own = frozenset[str]() if classic is None else classic.protocol_names
        others = self._classic_count - (classic is not None)
        return any(self._classic_protocols[name] - (name in own) == others for name in names)

    def add(self, member: ConsumerMember) -> None:
        """Add a member, with the partitions that it owns."""
        self._by_id[member.member_id] = member
        self._count(member, +1)
        self._own(member)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member; its partitions are free."""
        self._disown(member)
        self._count(member, -1)
        del self._by_id[member.member_id]

    def describe(self, member: ConsumerMember, metadata: MemberMetadata) -> None:
        """Take what a member says of itself now."""
        self._count(member, -1)
        member.metadata = metadata
        self._count(member, +1)

    def assign(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        """Take the next assignment of a member.

        Raises:
            BrokenInvariant: a partition has another owner, or the epoch goes back.
        """
        before = member.current
        if 0 <= current.epoch < before.epoch:
            raise BrokenInvariant(
                f"group {self._group_id}",
                "member epochs never go back (KIP-848)",
                member=member.member_id,
                epoch=current.epoch,
                before=before.epoch,
            )
        self._disown(member)
        member.current = current
        self._own(member)

    def _own(self, member: ConsumerMember) -> None:
        current = member.current
        self._stable_at[current.epoch] += current.state is MemberState.STABLE
        for at in current.partitions():
            owner = self._owners.setdefault(at, member.member_id)
            if owner != member.member_id:
                raise BrokenInvariant(
                    f"group {self._group_id}",
                    "a partition has one owner (KIP-848)",
                    partition=f"{at[0].hex()}-{at[1]}",
                    owner=owner,
                    other=member.member_id,
                )

    def _disown(self, member: ConsumerMember) -> None:
        current = member.current
        if current.state is MemberState.STABLE:
            self._stable_at[current.epoch] -= 1
            if not self._stable_at[current.epoch]:
                del self._stable_at[current.epoch]
        for at in current.partitions():
            self._owners.pop(at, None)

    def _count(self, member: ConsumerMember, by: int) -> None:
        metadata = member.metadata
        for name in metadata.topic_names:
            _add(self.topic_names, name, by)
        if metadata.topic_regex:
            _add(self.topic_regexes, metadata.topic_regex, by)
        if metadata.server_assignor is not None:
            _add(self._assignors, metadata.server_assignor, by)
        if metadata.classic is not None:
            self._classic_count += by
            for name in metadata.classic.protocol_names:
                _add(self._classic_protocols, name, by)
        if metadata.instance_id is not None:
            if by > 0:
                self._static_ids[metadata.instance_id] = member.member_id
            elif self._static_ids.get(metadata.instance_id) == member.member_id:
                del self._static_ids[metadata.instance_id]


def _add(counter: Counter[str], name: str, by: int) -> None:
    counter[name] += by
    if not counter[name]:
        del counter[name]
