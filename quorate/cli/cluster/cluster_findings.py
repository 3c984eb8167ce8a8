"""What ``quorate status --check`` finds wrong with a cluster, and how bad each thing is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from quorate.cli.cluster.broker_disks import BrokerDisk
from quorate.client.results import ClusterStatus, PartitionName

FREE_PART_MIN = 0.1
"""A disk with less than this part of it free is worth a warning."""
_NAMED_MAX = 5


class Severity(IntEnum):
    """How bad a finding is; the value is the exit code of ``--check``."""

    FINE = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, in a line for people."""

    severity: Severity
    text: str


def findings(status: ClusterStatus, disks: Sequence[BrokerDisk]) -> list[Finding]:
    """Return what is wrong, the worst first."""
    found = [*_of_cluster(status), *_of_partitions(status), *_of_disks(disks)]
    found += [Finding(Severity.WARNING, alert) for alert in status.alerts]
    return sorted(found, key=lambda one: -one.severity)


def worst(found: Sequence[Finding]) -> Severity:
    return max((one.severity for one in found), default=Severity.FINE)


def _of_cluster(status: ClusterStatus) -> Iterator[Finding]:
    if not status.features:
        yield Finding(
            Severity.CRITICAL,
            "the health of the cluster is told to those only who are allowed to DESCRIBE it",
        )
        return
    if status.controller_id < 0:
        yield Finding(Severity.CRITICAL, "there is no controller")
    if not status.quorum_leader:
        yield Finding(Severity.CRITICAL, "the metadata quorum has no leader, or does not answer")
    without = [str(broker.id) for broker in status.brokers if not broker.rack]
    if 0 < len(without) < len(status.brokers):
        yield Finding(
            Severity.WARNING,
            f"racks have no effect, because broker {', '.join(without)} has none",
        )


def _of_partitions(status: ClusterStatus) -> Iterator[Finding]:
    """Yield each trouble of partitions. One that is offline is not told again as a lesser one."""
    told: set[PartitionName] = set()
    for severity, partitions, what in (
        (Severity.CRITICAL, status.offline_partitions, "offline: nobody leads them"),
        (
            Severity.CRITICAL,
            status.under_min_isr_partitions,
            "under their minimum of replicas in sync: acks=all is refused",
        ),
        (
            Severity.WARNING,
            status.at_min_isr_partitions,
            "at their minimum of replicas in sync: one more loss makes them refuse acks=all",
        ),
        (Severity.WARNING, status.under_replicated_partitions, "under-replicated"),
    ):
        new = [one for one in partitions if one not in told]
        told.update(new)
        if new:
            yield Finding(severity, f"{_counted(new)} {what} ({_named(new)})")


def _of_disks(disks: Sequence[BrokerDisk]) -> Iterator[Finding]:
    for disk in disks:
        if disk.failed:
            yield Finding(
                Severity.CRITICAL, f"the log directory of broker {disk.broker_id} has failed"
            )
        elif disk.full:
            yield Finding(Severity.CRITICAL, f"the disk of broker {disk.broker_id} is full")
        elif disk.total_bytes and disk.free_bytes < FREE_PART_MIN * disk.total_bytes:
            yield Finding(
                Severity.WARNING,
                f"the disk of broker {disk.broker_id} has only "
                f"{disk.free_bytes / disk.total_bytes:.0%} free",
            )


def _counted(partitions: Sequence[PartitionName]) -> str:
    return f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'}"


def _named(partitions: Sequence[PartitionName]) -> str:
    named = ", ".join(f"{one.topic}-{one.partition}" for one in partitions[:_NAMED_MAX])
    more = len(partitions) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
