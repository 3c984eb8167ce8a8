"""The log directories of brokers, from the metrics that each of them reports."""

from collections.abc import Iterable
from dataclasses import dataclass

from quorate.client.results import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDisk:
    """The log directory of a broker, and the disk that holds it. ``total_bytes`` is 0 where the
    broker does not tell."""

    broker_id: int
    leaders: int
    replicas: int
    stored_bytes: int
    free_bytes: int
    total_bytes: int
    failed: bool
    full: bool


def broker_disks(metrics: Iterable[Metric]) -> list[BrokerDisk]:
    """Return the log directory of every broker that reports figures, by broker id."""
    figures: dict[int, dict[str, float]] = {}
    for metric in metrics:
        if not metric.tags:
            figures.setdefault(metric.broker_id, {})[metric.name] = metric.value
    return [_disk(broker_id, found) for broker_id, found in sorted(figures.items())]


def _disk(broker_id: int, figures: dict[str, float]) -> BrokerDisk:
    return BrokerDisk(
        broker_id=broker_id,
        leaders=int(figures.get("LeaderCount", 0)),
        replicas=int(figures.get("PartitionCount", 0)),
        stored_bytes=int(figures.get("StoredBytes", 0)),
        free_bytes=int(figures.get("DiskFreeBytes", 0)),
        total_bytes=int(figures.get("DiskTotalBytes", 0)),
        failed=bool(figures.get("OfflineLogDirectoryCount", 0)),
        full=bool(figures.get("FullLogDirectoryCount", 0)),
    )
