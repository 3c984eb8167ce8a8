"""Metrics of the cluster as the controller sees it, and of this broker's view of the quorum."""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from quorate.common.metrics.family import Family, MetricKind, Sample
from quorate.metadata_log.image import Image

_CONTROLLER: Final = "KafkaController"


def _controller(name: str, kafka_name: str, doc: str) -> Family:
    return Family(f"quorate_{name}", MetricKind.GAUGE, _CONTROLLER, kafka_name, doc)


ACTIVE_CONTROLLER: Final = _controller(
    "active_controller",
    "ActiveControllerCount",
    "1 at the broker that is the controller; the sum over all brokers is to be 1.",
)
CONTROLLER_EPOCH: Final = _controller(
    "controller_epoch", "ControllerEpoch", "Newest controller epoch that this broker knows."
)
OFFLINE: Final = _controller(
    "offline_partitions",
    "OfflinePartitionsCount",
    "Partitions without a leader; told by the controller alone.",
)
TOPICS: Final = _controller(
    "topics", "GlobalTopicCount", "Topics of the cluster; told by the controller alone."
)
ALL_PARTITIONS: Final = _controller(
    "cluster_partitions",
    "GlobalPartitionCount",
    "Partitions of the cluster; told by the controller alone.",
)
IMBALANCE: Final = _controller(
    "preferred_replica_imbalance",
    "PreferredReplicaImbalanceCount",
    "Partitions not led by their first replica; told by the controller alone.",
)
BROKERS: Final = _controller(
    "brokers", "ActiveBrokerCount", "Registered brokers; told by the controller alone."
)
REASSIGNING: Final = _controller(
    "reassigning_partitions",
    "ReassigningPartitions",
    "Partitions whose replicas are moving; told by the controller alone.",
)
METADATA_OFFSET: Final = Family(
    "quorate_metadata_offset",
    MetricKind.GAUGE,
    "broker-metadata-metrics",
    "last-applied-record-offset",
    "Offset of the newest metadata that this broker has.",
)
QUORUM_SILENCE: Final = Family(
    "quorate_quorum_silence_seconds",
    MetricKind.GAUGE,
    "SessionExpireListener",
    "SilenceSeconds",
    "How long ago the quorum last answered this broker's keep-alive.",
)


class _Quorum(Protocol):
    @property
    def last_keep_alive_ms(self) -> int: ...


def cluster_samples(
    image: Image, *, is_controller: bool, quorum: _Quorum, now_ms: Callable[[], int]
) -> Iterator[Sample]:
    """Return the samples of the newest image."""
    yield Sample(METADATA_OFFSET, image.offset)
    yield Sample(QUORUM_SILENCE, max(0, now_ms() - quorum.last_keep_alive_ms) / 1000)
    yield Sample(CONTROLLER_EPOCH, image.controller_epoch)
    yield Sample(ACTIVE_CONTROLLER, float(is_controller))
    if is_controller:
        yield from _of_controller(image)


def _of_controller(image: Image) -> Iterator[Sample]:
    partitions = [one for topic in image.topics.values() for one in topic.partitions]
    not_preferred = sum(not one.offline and one.leader != one.replicas[0] for one in partitions)
    yield Sample(BROKERS, len(image.brokers))
    yield Sample(TOPICS, len(image.topics))
    yield Sample(ALL_PARTITIONS, len(partitions))
    yield Sample(OFFLINE, sum(one.offline for one in partitions))
    yield Sample(IMBALANCE, not_preferred)
    yield Sample(REASSIGNING, sum(map(len, image.reassignments.values())))
