"""Metrics of the partitions that a broker holds, and of its log directory."""

from collections.abc import Iterator
from typing import Final

from quorate.broker.log import LogDirectories
from quorate.broker.log.writing.disk_space import disk_usages
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.hosting.traffic import ReplicaTraffic
from quorate.common.metrics.family import Family, MetricKind, Sample, total

_REPLICAS: Final = "ReplicaManager"
_TOPICS: Final = "BrokerTopicMetrics"
_LOG: Final = "Log"
PARTITION: Final = "partition"
PARTITION_LABELS: Final = ("topic", PARTITION)


def _replicas(name: str, kafka_name: str, doc: str, kind: MetricKind = MetricKind.GAUGE) -> Family:
    return Family(f"quorate_{name}", kind, _REPLICAS, kafka_name, doc)


def _topics(name: str, kafka_name: str, doc: str) -> Family:
    return Family(f"quorate_{name}_total", MetricKind.COUNTER, _TOPICS, kafka_name, doc, ("topic",))


def _of_log(name: str, kafka_name: str, doc: str) -> Family:
    return Family(f"quorate_{name}", MetricKind.GAUGE, _LOG, kafka_name, doc, PARTITION_LABELS)


PARTITIONS: Final = _replicas("partitions", "PartitionCount", "Replicas that this broker holds.")
LEADERS: Final = _replicas("leaders", "LeaderCount", "Partitions that this broker leads.")
UNDER_REPLICATED: Final = _replicas(
    "under_replicated_partitions",
    "UnderReplicatedPartitions",
    "Partitions led here whose ISR is smaller than their replicas.",
)
UNDER_MIN_ISR: Final = _replicas(
    "under_min_isr_partitions",
    "UnderMinIsrPartitionCount",
    "Partitions led here whose ISR is below min.insync.replicas: acks=all is refused.",
)
AT_MIN_ISR: Final = _replicas(
    "at_min_isr_partitions",
    "AtMinIsrPartitionCount",
    "Partitions led here whose ISR is at min.insync.replicas and smaller than their replicas.",
)
PRODUCERS: Final = _replicas(
    "producer_ids",
    "ProducerIdCount",
    "Idempotent producers that are remembered, counted once in each partition here.",
)
DAMAGED: Final = _replicas(
    "damaged_replicas",
    "DamagedReplicaCount",
    "Replicas here with a part that cannot be read: fetched again where another one can lead.",
)
STRAYS: Final = Family(
    "quorate_stray_logs",
    MetricKind.GAUGE,
    "LogManager",
    "StrayLogCount",
    "Logs here that the quorum does not know: kept until an operator restores or deletes them.",
)
LOST: Final = _replicas(
    "lost_replicas",
    "LostReplicaCount",
    "Replicas here that are lost, and are not out of their ISRs yet.",
)
BROKEN: Final = _replicas(
    "broken_replicas",
    "BrokenReplicaCount",
    "Replicas here that broke an invariant and serve nobody; more than 0 is a bug to report.",
)
ISR_SHRINKS: Final = _replicas(
    "isr_shrinks_total",
    "IsrShrinksPerSec",
    "ISRs that were made smaller by this leader.",
    MetricKind.COUNTER,
)
ISR_EXPANDS: Final = _replicas(
    "isr_expands_total",
    "IsrExpandsPerSec",
    "ISRs that were made larger by this leader.",
    MetricKind.COUNTER,
)
ISR_REFUSED: Final = _replicas(
    "isr_changes_refused_total",
    "FailedIsrUpdatesPerSec",
    "ISR changes of this leader that the quorum did not take.",
    MetricKind.COUNTER,
)
BYTES_IN: Final = _topics("bytes_in", "BytesInPerSec", "Bytes of records from producers.")
BYTES_OUT: Final = _topics("bytes_out", "BytesOutPerSec", "Bytes of records to consumers.")
RECORDS_IN: Final = _topics("records_in", "MessagesInPerSec", "Records from producers.")
PRODUCES_REFUSED: Final = _topics(
    "produces_refused",
    "FailedProduceRequestsPerSec",
    "Produces to a partition that were refused.",
)
REPLICATED_IN: Final = Family(
    "quorate_replication_bytes_in_total",
    MetricKind.COUNTER,
    _TOPICS,
    "ReplicationBytesInPerSec",
    "Bytes of records fetched from leaders.",
)
REPLICATED_OUT: Final = Family(
    "quorate_replication_bytes_out_total",
    MetricKind.COUNTER,
    _TOPICS,
    "ReplicationBytesOutPerSec",
    "Bytes of records sent to followers.",
)
LOG_SIZE: Final = _of_log("log_size_bytes", "Size", "Bytes of the partition's log here.")
LOG_START: Final = _of_log("log_start_offset", "LogStartOffset", "First offset of the log here.")
LOG_END: Final = _of_log("log_end_offset", "LogEndOffset", "Offset of the next record here.")
HIGH_WATERMARK: Final = _of_log(
    "high_watermark", "HighWatermark", "Offset behind the last committed record, as known here."
)
STABLE_LAG: Final = _of_log(
    "last_stable_offset_lag",
    "LastStableOffsetLag",
    "Offsets between the first transaction that is not over and the high watermark.",
)
COMMIT_TIMES: Final = Family(
    "quorate_log_commit_seconds",
    MetricKind.HISTOGRAM,
    "LogFlushStats",
    "LogFlushRateAndTimeMs",
    "How long a group of batches takes to be written, and with log.flush=sync to be fsynced.",
)
SEGMENTS: Final = Family(
    "quorate_log_segments",
    MetricKind.GAUGE,
    "LogManager",
    "SegmentCount",
    "Segment files in the log directories.",
)
STORED: Final = Family(
    "quorate_log_stored_bytes",
    MetricKind.GAUGE,
    "LogManager",
    "StoredBytes",
    "Bytes of batches in segment files, those included that no log has any more.",
)
DELETED: Final = Family(
    "quorate_log_deleted_bytes_total",
    MetricKind.COUNTER,
    "LogManager",
    "DeletedBytesPerSec",
    "Bytes of records that logs let go of, by retention or DeleteRecords.",
)
RELOCATED: Final = Family(
    "quorate_log_relocated_bytes_total",
    MetricKind.COUNTER,
    "LogManager",
    "RelocatedBytesPerSec",
    "Bytes of batches copied forward out of mostly dead segments.",
)
PENDING: Final = Family(
    "quorate_log_pending_bytes",
    MetricKind.GAUGE,
    "LogManager",
    "PendingBytes",
    "Bytes appended and not yet written.",
)
DIRECTORIES: Final = Family(
    "quorate_log_directories",
    MetricKind.GAUGE,
    "LogManager",
    "LogDirectoryCount",
    "Log directories of the broker (log.dirs), those that are offline included.",
)
OFFLINE: Final = _replicas(
    "offline_replicas",
    "OfflineReplicaCount",
    "Replicas of this broker in log directories that are offline.",
)
LOG_FAILED: Final = Family(
    "quorate_log_directory_offline",
    MetricKind.GAUGE,
    "LogManager",
    "OfflineLogDirectoryCount",
    "Log directories that have failed or could not be opened: their replicas are offline.",
)

LOG_FULL: Final = Family(
    "quorate_log_directory_full",
    MetricKind.GAUGE,
    "LogManager",
    "FullLogDirectoryCount",
    "Log directories whose disk is full: batches are refused there, reads go on.",
)
DISK_TOTAL: Final = Family(
    "quorate_log_disk_total_bytes",
    MetricKind.GAUGE,
    "LogManager",
    "DiskTotalBytes",
    "Size of the file systems that hold the log directories.",
)
DISK_FREE: Final = Family(
    "quorate_log_disk_free_bytes",
    MetricKind.GAUGE,
    "LogManager",
    "DiskFreeBytes",
    "Bytes of these file systems that the broker may still use.",
)


def replica_samples(table: PartitionTable) -> Iterator[Sample]:
    """Yield all samples of partitions; partitions may come and go in the meantime."""
    yield from _counted(table)
    yield from _traffic(table.traffic)
    for hosted in tuple(table):
        if not hosted.log.is_offline:
            yield from _of_partition(hosted)


def store_samples(store: LogDirectories) -> Iterator[Sample]:
    """Yield all samples of the log directories, each as one sum."""
    stores = store.stores
    segments = [segment for one in stores for segment in tuple(one.segments.by_id.values())]
    yield Sample(COMMIT_TIMES, total(one.writer.commit_times.distribution for one in stores))
    yield Sample(SEGMENTS, len(segments))
    yield Sample(STORED, sum(segment.stored_bytes for segment in segments))
    yield Sample(DELETED, sum(one.writer.deleted_bytes for one in stores))
    yield Sample(RELOCATED, sum(one.relocator.copied_bytes for one in stores))
    yield Sample(PENDING, sum(one.writer.pending_bytes for one in stores))
    yield Sample(STRAYS, store.stray_count)
    yield Sample(LOST, len(store.lost))
    yield Sample(DIRECTORIES, len(store.directories))
    yield Sample(LOG_FAILED, len(store.offline_directories))
    yield Sample(LOG_FULL, sum(one.is_full for one in stores))
    yield Sample(OFFLINE, sum(log.is_offline for log in store.logs.values()) + len(store.withheld))
    disks = disk_usages(one.directory for one in stores)
    if disks:
        yield Sample(DISK_TOTAL, sum(disk.total_bytes for disk in disks))
        yield Sample(DISK_FREE, sum(disk.free_bytes for disk in disks))


def _counted(table: PartitionTable) -> Iterator[Sample]:
    led = [hosted.replica for hosted in table if hosted.leads]
    small = [replica for replica in led if len(replica.isr.committed) < len(replica.replicas)]
    yield Sample(PARTITIONS, sum(1 for _ in table))
    yield Sample(LEADERS, len(led))
    yield Sample(PRODUCERS, sum(len(hosted.log.producers) for hosted in table))
    yield Sample(DAMAGED, sum(hosted.is_damaged for hosted in table))
    yield Sample(BROKEN, sum(bool(hosted.broken) for hosted in table))
    yield Sample(UNDER_REPLICATED, len(small))
    yield Sample(UNDER_MIN_ISR, sum(not replica.has_enough_replicas for replica in led))
    yield Sample(
        AT_MIN_ISR,
        sum(len(replica.isr.committed) == replica.min_insync_replicas for replica in small),
    )


def _traffic(traffic: ReplicaTraffic) -> Iterator[Sample]:
    yield Sample(ISR_SHRINKS, traffic.isr_shrinks)
    yield Sample(ISR_EXPANDS, traffic.isr_expands)
    yield Sample(ISR_REFUSED, traffic.isr_changes_refused)
    yield Sample(REPLICATED_IN, traffic.replicated_in_bytes)
    yield Sample(REPLICATED_OUT, traffic.replicated_out_bytes)
    for topic, counted in tuple(traffic.by_topic.items()):
        yield Sample(BYTES_IN, counted.bytes_in, (topic,))
        yield Sample(BYTES_OUT, counted.bytes_out, (topic,))
        yield Sample(RECORDS_IN, counted.records_in, (topic,))
        yield Sample(PRODUCES_REFUSED, counted.produces_refused, (topic,))


def _of_partition(hosted: HostedPartition) -> Iterator[Sample]:
    labels = (hosted.tp.topic, str(hosted.tp.partition))
    yield Sample(LOG_SIZE, hosted.log.size_bytes, labels)
    yield Sample(LOG_START, hosted.log.log_start_offset, labels)
    yield Sample(LOG_END, hosted.log.log_end_offset, labels)
    high_watermark = hosted.replica.high_watermark
    yield Sample(HIGH_WATERMARK, high_watermark, labels)
    yield Sample(STABLE_LAG, max(0, high_watermark - hosted.last_stable_offset), labels)
