"""Is imported by every Python process that has this folder in its path, before its program."""

from quorate.broker.log.batches.admission import produced_batches
from quorate.broker.replication.api import ProduceEntry
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.serving.produce import RecordAppender, Validated


def _by_their_headers(_: RecordAppender, hosted: HostedPartition, entry: ProduceEntry) -> Validated:
    return produced_batches(entry.records, hosted.log.max_batch_bytes, entry.tp, entry.origin)


setattr(RecordAppender, "_validated", _by_their_headers)  # noqa: B010 - it is no method to mypy
