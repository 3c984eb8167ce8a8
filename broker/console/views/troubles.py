"""What is wrong with the cluster, the worst first, and where to look. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from quorate.broker.console.health.topic_health import ClusterHealth
from quorate.common.types import BrokerId

DISK_SERIOUS: Final = 0.85
DISK_CRITICAL: Final = 0.95
NAMED_MAX: Final = 6


class Severity(IntEnum):
    """How bad a trouble is."""

    CRITICAL = 0
    """Something is not served, or is about to be."""
    SERIOUS = 1
    """One more failure, and something is not served."""
    NOTE = 2
    """Nothing is at risk."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong."""

    severity: Severity
    title: str
    detail: str = ""
    path: tuple[str, ...] = ()
    """The page that shows it."""
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuorumHealth:
    """The quorum as a voter described it. ``problem`` says why it is not known, if it is not."""

    leader: int = -1
    voters: int = 0
    silent: tuple[int, ...] = ()
    """The voters that the leader has not heard of for a while."""
    problem: str = ""
    is_hidden: bool = False
    """True if the person may not see it."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a broker's log folder, in bytes."""

    used: float
    total: float

    @property
    def share(self) -> float:
        return self.used / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What the troubles are found in."""

    health: ClusterHealth
    offline_topics: Sequence[str] = ()
    under_replicated_topics: Sequence[str] = ()
    controller: BrokerId | None = None
    away: Mapping[BrokerId, int] = field(default_factory=dict)
    """The brokers that are not registered and have replicas, with their number."""
    not_admitted: Sequence[BrokerId] = ()
    quorum: QuorumHealth = field(default_factory=QuorumHealth)
    disks: Mapping[BrokerId, Disk] = field(default_factory=dict)
    growing_groups: Mapping[str, float] = field(default_factory=dict)
    """The groups whose lag grows, with the lag."""
    alerts: Sequence[str] = ()
    silent: Mapping[BrokerId, str] = field(default_factory=dict)
    """The brokers that did not answer the console, and why."""


def troubles(signs: Signs) -> list[Trouble]:
    """Return what is wrong, the worst first."""
    found = [
        *_of_quorum(signs),
        *_of_brokers(signs),
        *_of_partitions(signs),
        *_of_disks(signs.disks),
        *_of_groups(signs.growing_groups),
        *(Trouble(Severity.SERIOUS, "Alert", alert) for alert in dict.fromkeys(signs.alerts)),
        *_of_moves(signs.health),
    ]
    return sorted(found, key=lambda one: one.severity)


def _of_quorum(signs: Signs) -> Iterator[Trouble]:
    quorum = signs.quorum
    if quorum.is_hidden:
        return
    page = ("quorum",)
    if quorum.problem:
        yield Trouble(
            Severity.CRITICAL, "The metadata quorum does not answer", quorum.problem, page
        )
    elif quorum.leader < 0:
        detail = "No change of the cluster is possible until a majority of voters elects one."
        yield Trouble(Severity.CRITICAL, "The metadata quorum has no leader", detail, page)
    elif quorum.silent:
        left = (quorum.voters - 1) // 2 - len(quorum.silent)
        severity = Severity.SERIOUS if left > 0 else Severity.CRITICAL
        detail = (
            f"It survives the loss of {left} more."
            if left > 0
            else "One more loss, and the quorum has no majority."
        )
        yield Trouble(severity, f"{_named('Voter', 'Voters', quorum.silent)} silent", detail, page)


def _of_brokers(signs: Signs) -> Iterator[Trouble]:
    if signs.controller is None:
        detail = "Nobody elects leaders. A broker claims the office as soon as the quorum answers."
        yield Trouble(Severity.CRITICAL, "No active controller", detail, ("quorum",))
    for broker, replicas in sorted(signs.away.items()):
        yield Trouble(
            Severity.SERIOUS,
            f"Broker {broker} is away",
            f"It has {replicas:,} replicas. Start it, or move them with quorate reassign.",
            ("brokers", str(broker)),
        )
    for broker in signs.not_admitted:
        yield Trouble(
            Severity.SERIOUS,
            f"Broker {broker} is fenced",
            "It is registered, and the controller has not admitted it yet.",
            ("brokers", str(broker)),
        )
    for broker, why in sorted(signs.silent.items()):
        yield Trouble(
            Severity.NOTE,
            f"Broker {broker} tells the console nothing",
            why,
            ("brokers", str(broker)),
        )


def _of_partitions(signs: Signs) -> Iterator[Trouble]:
    health = signs.health
    if health.offline:
        yield Trouble(
            Severity.CRITICAL,
            _counted(health.offline, "partition is offline", "partitions are offline"),
            f"Nobody leads them: {_some(signs.offline_topics)}",
            ("topics",),
            {"show": "offline"},
        )
    if health.under_min_isr:
        yield Trouble(
            Severity.CRITICAL,
            _counted(
                health.under_min_isr,
                "partition is under min.insync.replicas",
                "partitions are under min.insync.replicas",
            ),
            "Producers with acks=all are refused there.",
            ("topics",),
            {"show": "trouble"},
        )
    if health.under_replicated:
        yield Trouble(
            Severity.SERIOUS,
            _counted(
                health.under_replicated,
                "partition is under-replicated",
                "partitions are under-replicated",
            ),
            f"Replicas are not in sync: {_some(signs.under_replicated_topics)}",
            ("topics",),
            {"show": "trouble"},
        )


def _of_disks(disks: Mapping[BrokerId, Disk]) -> Iterator[Trouble]:
    for broker, disk in sorted(disks.items()):
        if disk.share >= DISK_SERIOUS:
            is_critical = disk.share >= DISK_CRITICAL
            yield Trouble(
                Severity.CRITICAL if is_critical else Severity.SERIOUS,
                f"The disk of broker {broker} is {disk.share:.0%} full",
                "A full disk refuses produce requests. Lower retention, or add space.",
                ("brokers", str(broker)),
            )


def _of_groups(groups: Mapping[str, float]) -> Iterator[Trouble]:
    for group, lag in sorted(groups.items(), key=lambda one: -one[1])[:NAMED_MAX]:
        yield Trouble(
            Severity.SERIOUS,
            f"Group {group} falls behind",
            f"Its lag is {lag:,.0f} records, and grows.",
            ("groups", group),
        )


def _of_moves(health: ClusterHealth) -> Iterator[Trouble]:
    if health.moving:
        title = _counted(health.moving, "partition is being moved", "partitions are being moved")
        yield Trouble(Severity.NOTE, title, "", ("topics",), {"show": "moving"})
    if health.not_preferred:
        title = _counted(
            health.not_preferred,
            "partition is not led by its preferred replica",
            "partitions are not led by their preferred replicas",
        )
        detail = "A preferred election evens the load out, once all brokers are back."
        yield Trouble(Severity.NOTE, title, detail, ("topics",), {"show": "not-preferred"})


def _counted(amount: int, one: str, many: str) -> str:
    return f"{amount:,} {one if amount == 1 else many}"


def _named(one: str, many: str, ids: Sequence[int]) -> str:
    listed = ", ".join(map(str, ids))
    return f"{one} {listed} is" if len(ids) == 1 else f"{many} {listed} are"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
    return ", ".join(listed[:NAMED_MAX]) + more
