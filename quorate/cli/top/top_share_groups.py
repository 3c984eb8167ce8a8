"""The share groups that ``quorate top`` shows, with their lag and their speed (KIP-932)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from quorate.cli.top.measurements import Look
from quorate.client.errors import QuorateError
from quorate.client.share_groups import ShareOffset

SHARE_GROUPS_ASKED_MAX: Final = 50
"""Largest number of share groups in one measurement: each of them needs requests of its own."""

_IN_FLIGHT: Final = "InFlightMessageCount"
_DELIVERED: Final = "GroupRecordsAcquired"


@dataclass(frozen=True, slots=True)
class ShareGroupSnapshot:
    """The state and the lag of each share group at one time; ``trouble`` says why some are
    missing."""

    groups: Mapping[str, tuple[str, int]]
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupRates:
    """A share group after a measurement."""

    group: str
    state: str
    in_flight: int
    """The records from the first that is not accepted or rejected to the last that was handed
    out."""
    lag: int
    """The records that are neither accepted nor rejected."""
    delivered_per_s: float
    """Records handed out per second since the measurement before, those that came again too."""


class ShareGroupReads(Protocol):
    """The methods of ``quorate.client.share_groups.ShareGroups`` that are needed here."""

    def all(self) -> list[tuple[str, str]]:
        """Return the name and the state of each share group."""

    def offsets(self, group_id: str) -> list[ShareOffset]:
        """Return how far a group is in each of its partitions."""


def look(reads: ShareGroupReads) -> ShareGroupSnapshot:
    """Ask for the share groups and how far they are. A group that is deleted meanwhile is left
    out."""
    found = reads.all()
    asked = found[:SHARE_GROUPS_ASKED_MAX]
    groups: dict[str, tuple[str, int]] = {}
    for name, state in asked:
        try:
            groups[name] = (state, sum(one.lag or 0 for one in reads.offsets(name)))
        except QuorateError:
            continue
    left_out = len(found) - len(asked)
    return ShareGroupSnapshot(groups, f"{left_out} more are not asked" if left_out else "")


def share_group_rates(
    before: Look, after: Look, seen: ShareGroupSnapshot, limit: int
) -> list[ShareGroupRates]:
    """Return at most ``limit`` share groups, those with the largest lag first."""
    rates = [
        ShareGroupRates(
            group=group,
            state=state,
            in_flight=int(after.of_group(group, _IN_FLIGHT)),
            lag=lag,
            delivered_per_s=_rate(before, after, group),
        )
        for group, (state, lag) in seen.groups.items()
    ]
    return sorted(rates, key=lambda one: (-one.lag, one.group))[:limit]


def _rate(before: Look, after: Look, group: str) -> float:
    """Return the records per second. Brokers that were restarted, or where nobody fetched for a
    while, begin to count anew."""
    now, earlier = after.of_group(group, _DELIVERED), before.of_group(group, _DELIVERED)
    return (now - earlier if now >= earlier else now) / max(after.at_s - before.at_s, 1e-9)


HEAD: Final = ("share group", "state", "in flight", "lag", "delivered")


def row(one: ShareGroupRates) -> tuple[str, ...]:
    """Return the group as the cells of a table row."""
    return (
        one.group,
        one.state,
        f"{one.in_flight:,}",
        f"{one.lag:,}",
        f"{one.delivered_per_s:,.0f}/s",
    )
