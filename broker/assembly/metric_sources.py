"""The metrics of a broker's stages, as the metrics listener and the Admin service show them."""

from collections.abc import Iterator

from quorate.broker.assembly.coordinator_stage import CoordinatorStage
from quorate.broker.assembly.shared_parts import SharedParts
from quorate.broker.metrics.cluster_metrics import cluster_samples
from quorate.broker.metrics.compaction_metrics import compaction_samples
from quorate.broker.metrics.group_metrics import group_samples
from quorate.broker.metrics.replica_metrics import replica_samples, store_samples
from quorate.broker.metrics.transaction_metrics import transaction_samples
from quorate.broker.replication.manager import ReplicaManager
from quorate.common.metrics.family import Sample


def add_metrics(
    shared: SharedParts, replicas: ReplicaManager, coordinators: CoordinatorStage
) -> None:
    """Add the samples of these stages to the metrics of the broker."""
    environment, table = shared.environment, replicas.table

    def cluster() -> Iterator[Sample]:
        controller = shared.active_controller.active
        yield from cluster_samples(
            shared.images.image,
            is_controller=controller is not None,
            quorum=shared.quorum,
            now_ms=environment.now_ms,
        )
        if controller is not None:
            yield from controller.metrics()

    add = shared.metrics.add
    add(cluster)
    add(lambda: replica_samples(table))
    add(lambda: store_samples(table.store))
    add(lambda: compaction_samples(replicas.compaction.figures, environment.now_ms()))
    add(lambda: group_samples(coordinators.groups, table.high_watermark))
    add(coordinators.dead_letters.figures.samples)
    add(
        lambda: transaction_samples(
            coordinators.transactions, coordinators.markers, environment.wall_clock_ms()
        )
    )
