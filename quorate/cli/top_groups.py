"""What ``quorate top`` shows of consumer groups: how far behind they are, and how fast they go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from quorate.cli.group_admin import Partition

GROUPS_ASKED_MAX: Final = 200
"""In one look: each group is a request to its coordinator."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group at one time; ``ends``: of its partitions, as far as leaders tell."""

    group: str
    state: str
    committed: Mapping[Partition, int]
    ends: Mapping[Partition, int]

    @property
    def lag(self) -> int:
        """Records behind what it has committed, of partitions whose end is known."""
        return sum(
            max(0, self.ends[one] - offset)
            for one, offset in self.committed.items()
            if one in self.ends
        )


@dataclass(frozen=True, slots=True)
class GroupLook:
    """Groups at one time, in seconds of any clock; ``trouble``: why there are none, or not all."""

    at_s: float
    groups: Sequence[GroupOffsets] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRates:
    """A group between two looks."""

    group: str
    state: str
    partitions: int
    lag: int
    committed_per_s: float
    """Offsets per second; a group that was set back has none."""
    caught_up_s: float | None
    """When it will have caught up at this pace, if it comes nearer; 0: it has."""


class GroupReads(Protocol):
    """``group_admin.Groups``."""

    def all(self) -> list[tuple[str, str]]:
        """Name and state of each."""

    def committed_by_each(self, group_ids: Sequence[str]) -> dict[str, dict[Partition, int]]:
        """By group: the offset committed of each partition."""

    def known_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where those partitions end; without those that nobody tells of."""


def look(at_s: float, reads: GroupReads) -> GroupLook:
    """Ask for groups, their offsets, and where their partitions end."""
    found = reads.all()
    states = dict(found[:GROUPS_ASKED_MAX])
    committed = reads.committed_by_each(list(states))
    ends = reads.known_ends({one for offsets in committed.values() for one in offsets})
    groups = [
        GroupOffsets(
            group,
            states[group],
            offsets,
            {one: ends[one] for one in offsets if one in ends},
        )
        for group, offsets in committed.items()
    ]
    left_out = len(found) - len(states)
    return GroupLook(at_s, groups, f"{left_out} more are not asked" if left_out else "")


def group_rates(before: GroupLook, after: GroupLook, limit: int) -> list[GroupRates]:
    """Those that are the farthest behind first, at most ``limit``."""
    seconds = max(after.at_s - before.at_s, 1e-9)
    earlier = {one.group: one for one in before.groups}
    rates = [_rates(earlier.get(one.group), one, seconds) for one in after.groups]
    return sorted(rates, key=lambda one: (-one.lag, one.group))[:limit]


def _rates(before: GroupOffsets | None, after: GroupOffsets, seconds: float) -> GroupRates:
    moved = 0
    nearer = 0.0
    if before is not None:
        moved = sum(
            max(0, offset - before.committed.get(one, offset))
            for one, offset in after.committed.items()
        )
        nearer = (before.lag - after.lag) / seconds
    if not after.lag:
        caught_up_s: float | None = 0.0
    else:
        caught_up_s = after.lag / nearer if nearer > 0 else None
    return GroupRates(
        group=after.group,
        state=after.state,
        partitions=len(after.committed),
        lag=after.lag,
        committed_per_s=moved / seconds,
        caught_up_s=caught_up_s,
    )


HEAD: Final = ("group", "state", "partitions", "lag", "committed", "caught up in")


def row(one: GroupRates) -> tuple[str, ...]:
    """As people see it."""
    return (
        one.group,
        one.state,
        str(one.partitions),
        f"{one.lag:,}",
        f"{one.committed_per_s:,.0f}/s",
        "-" if one.caught_up_s is None else f"{one.caught_up_s:,.0f} s",
    )
