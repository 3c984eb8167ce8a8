"""Figures of the consumer groups that a broker coordinates."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.groups.basis import GroupState
from broker.metrics.replicas import PARTITION
from metadata_log.types import TopicPartition
from quorum.metrics.family import Family, Kind, Sample

_GROUPS: Final = "GroupMetadataManager"
_LABELS: Final = ("group", "topic", PARTITION)

GROUPS: Final = Family(
    "quorate_groups",
    Kind.GAUGE,
    _GROUPS,
    "NumGroups",
    "Consumer groups coordinated here, by state.",
    ("state",),
)
COMMITTED: Final = Family(
    "quorate_group_committed_offset",
    Kind.GAUGE,
    "consumer-coordinator-metrics",
    "committed-offset",
    "Offset that a group coordinated here has committed.",
    _LABELS,
)
LAG: Final = Family(
    "quorate_group_lag_records",
    Kind.GAUGE,
    "consumer-fetch-manager-metrics",
    "records-lag",
    "Committed records that a group has not got to; told where the coordinator has a replica.",
    _LABELS,
)

HighWatermarkOf = Callable[[TopicPartition], int | None]
"""Of a partition that this broker has a replica of; None: it has none."""


def group_samples(
    coordinator: GroupCoordinator, high_watermark_of: HighWatermarkOf
) -> Iterator[Sample]:
    """All figures of groups, which may come and go between any two of them."""
    states = Counter(group.state for group in coordinator.groups())
    for state in GroupState:
        yield Sample(GROUPS, states[state], (state.value,))
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
