"""The consumer groups that ``quorate top`` shows, with their lag and their speed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from quorate.cli.groups.group_offsets import Partition

GROUPS_ASKED_MAX: Final = 200
"""Largest number of groups in one measurement: each of them needs a request to its coordinator."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The offsets of a group at one time; ``ends`` has the partitions whose end is known."""

    group: str
    state: str
    committed: Mapping[Partition, int]
    ends: Mapping[Partition, int]

    @property
    def lag(self) -> int:
        """Return the number of records after the committed offsets, in partitions whose end is
        known."""
        return sum(
            max(0, self.ends[one] - offset)
            for one, offset in self.committed.items()
            if one in self.ends
        )


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """All groups at one time, in seconds of any clock; ``trouble`` says why groups are missing."""

    at_s: float
    groups: Sequence[GroupOffsets] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRates:
    """The changes of a group between two measurements."""

    group: str
    state: str
    partitions: int
    lag: int
    committed_per_s: float
    """Offsets per second; 0 for a group whose offsets were reset to earlier ones."""
    caught_up_s: float | None
    """Seconds until the group has no lag at this speed, 0 if it has none, None if the lag does not
    shrink."""


class GroupReads(Protocol):
    """The methods of ``group_offsets.Groups`` that are needed here."""

    def all(self) -> list[tuple[str, str]]:
        """Return the name and the state of each group."""

    def committed_by_each(self, group_ids: Sequence[str]) -> dict[str, dict[Partition, int]]:
        """Return the committed offset of each partition, by group."""

    def known_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the end of each partition; partitions whose end cannot be read are left out."""


def look(at_s: float, reads: GroupReads) -> GroupSnapshot:
    """Ask for the groups, their offsets, and the ends of their partitions."""
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
    return GroupSnapshot(at_s, groups, f"{left_out} more are not asked" if left_out else "")


def group_rates(before: GroupSnapshot, after: GroupSnapshot, limit: int) -> list[GroupRates]:
    """Return at most ``limit`` groups, those with the largest lag first."""
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
    """Return the group as the cells of a table row."""
    return (
        one.group,
        one.state,
        str(one.partitions),
        f"{one.lag:,}",
        f"{one.committed_per_s:,.0f}/s",
        "-" if one.caught_up_s is None else f"{one.caught_up_s:,.0f} s",
    )
