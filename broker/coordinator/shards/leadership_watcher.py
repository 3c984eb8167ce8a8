"""Has a coordinator lead the partitions of its topic that this broker leads."""

from collections.abc import Callable
from typing import Any

from quorate.broker.coordinator.shards.coordinator_lease import CoordinatorLease
from quorate.broker.coordinator.shards.led_partition import LedPartition, transaction_end
from quorate.broker.coordinator.shards.partition_coordinator import PartitionCoordinator
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.manager import ReplicaManager


class LeadershipWatcher:
    """Loads and unloads a coordinator's partitions as this broker gains and loses their leadership.

    A topic may be deleted and created again under the same name, and this broker may hear of the
    deletion later, or never. The partitions of both are told apart, whatever their epochs are.
    """

    def __init__(
        self,
        coordinator: PartitionCoordinator[Any],
        replicas: ReplicaManager,
        lease: CoordinatorLease,
        wall_clock_ms: Callable[[], int],
        *,
        append_timeout_ms: int,
    ) -> None:
        """``append_timeout_ms`` limits the wait until the in-sync replicas have what is written."""
        self._coordinator = coordinator
        self._replicas = replicas
        self._lease = lease
        self._wall_clock_ms = wall_clock_ms
        self._append_timeout_ms = append_timeout_ms
        self._leading: dict[int, HostedPartition] = {}

    def on_leadership(self, hosted: HostedPartition) -> None:
        """Follow a change of leadership: it is a ``LeadershipListener`` of the partition table."""
        partition = hosted.tp.partition
        before = self._leading.get(partition)
        is_over = before is not hosted if hosted.leads else before is hosted
        if before is not None and is_over:
            del self._leading[partition]
            self._coordinator.resign(partition)
        if hosted.leads:
            self._leading[partition] = hosted
            self._coordinator.lead(partition, self._led_partition(hosted))

    def on_transaction_end(self, hosted: HostedPartition, marker: EndMarker, offset: int) -> None:
        """Tell the coordinator of a marker that ends a transaction in one of its partitions."""
        self._coordinator.end_transaction(hosted.tp.partition, transaction_end(marker, offset))

    def _led_partition(self, hosted: HostedPartition) -> LedPartition:
        return LedPartition(
            hosted,
            self._replicas,
            self._lease,
            timeout_ms=self._append_timeout_ms,
            wall_clock_ms=self._wall_clock_ms,
        )
