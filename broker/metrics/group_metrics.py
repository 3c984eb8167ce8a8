"""Metrics of the consumer groups that a broker coordinates."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from quorate.broker.coordinator.groups.consumer.group_epochs import ConsumerGroupState
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator
from quorate.broker.coordinator.groups.state.group_basis import GroupState
from quorate.broker.metrics.replica_metrics import PARTITION
from quorate.common.metrics.family import Family, MetricKind, Sample
from quorate.common.types import TopicPartition

_GROUPS: Final = "GroupMetadataManager"
_LABELS: Final = ("group", "topic", PARTITION)

GROUPS: Final = Family(
    "quorate_groups",
    MetricKind.GAUGE,
    _GROUPS,
    "NumGroups",
    "Consumer groups coordinated here, by state.",
    ("state",),
)
COMMITTED: Final = Family(
    "quorate_group_committed_offset",
    MetricKind.GAUGE,
    "consumer-coordinator-metrics",
    "committed-offset",
    "Offset that a group coordinated here has committed.",
    _LABELS,
)
LAG: Final = Family(
    "quorate_group_lag_records",
    MetricKind.GAUGE,
    "consumer-fetch-manager-metrics",
    "records-lag",
    "Committed records that a group has not got to; told where the coordinator has a replica.",
    _LABELS,
)

HighWatermarkOf = Callable[[TopicPartition], int | None]
"""Returns the high watermark of a partition, or None if this broker has no replica of it."""


def group_samples(
    coordinator: GroupCoordinator, high_watermark_of: HighWatermarkOf
) -> Iterator[Sample]:
    """Yield all samples of groups; groups may come and go in the meantime."""
    states = Counter(str(group.state) for group in coordinator.groups())
    for state in dict.fromkeys((*map(str, GroupState), *map(str, ConsumerGroupState))):
        yield Sample(GROUPS, states[state], (state,))
    for group_id, offsets in coordinator.committed():
        for tp in tuple(offsets):
            found = offsets.get(tp)
            if found is None:
                continue
            labels = (group_id, tp.topic, str(tp.partition))
            yield Sample(COMMITTED, found.offset, labels)
            high_watermark = high_watermark_of(tp)
            if high_watermark is not None:
                yield Sample(LAG, max(0, high_watermark - found.offset), labels)
