"""The keys of compacted topics and of the log cleaner, with Kafka's names."""

import sys
from typing import Final

from quorate.common.configuration import ConfigKey, Update

LOG_CLEANUP_POLICY: Final = ConfigKey(
    name="log.cleanup.policy",
    type=str,
    default="delete",
    pattern=r"\s*((delete|compact)\s*(,\s*(delete|compact)\s*)?)?",
    form="delete, compact, or both with a comma between, or empty",
    is_list=True,
    doc="What happens to old records, for topics without cleanup.policy. With delete, they are "
    "deleted by age and size. With compact, a record is removed once there is a newer one "
    "with the same key. Empty, all records are kept.",
    update=Update.CLUSTER_WIDE,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO: Final = ConfigKey(
    name="log.cleaner.min.cleanable.ratio",
    type=float,
    default=0.5,
    at_least=0,
    at_most=1,
    doc="A compacted log is cleaned again when at least this share of it has not been cleaned "
    "yet, for topics without min.cleanable.dirty.ratio.",
    update=Update.CLUSTER_WIDE,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS: Final = ConfigKey(
    name="log.cleaner.min.compaction.lag.ms",
    type=int,
    default=0,
    at_least=0,
    at_most=2**63 - 1,
    doc="The age that a record reaches before it may be compacted, for topics without "
    "min.compaction.lag.ms.",
    update=Update.CLUSTER_WIDE,
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS: Final = ConfigKey(
    name="log.cleaner.max.compaction.lag.ms",
    type=int,
    default=2**63 - 1,
    at_least=1,
    at_most=2**63 - 1,
    doc="The age after which a record must be compacted, however little of its log is dirty, for "
    "topics without max.compaction.lag.ms.",
    update=Update.CLUSTER_WIDE,
)
LOG_CLEANER_DELETE_RETENTION_MS: Final = ConfigKey(
    name="log.cleaner.delete.retention.ms",
    type=int,
    default=86_400_000,
    at_least=0,
    at_most=2**63 - 1,
    doc="How long a record without a value (a tombstone) stays after it was first compacted, for "
    "topics without delete.retention.ms.",
    update=Update.CLUSTER_WIDE,
)
LOG_CLEANER_ENABLE: Final = ConfigKey(
    name="log.cleaner.enable",
    type=bool,
    default=True,
    doc="Whether this broker compacts logs.",
)
LOG_CLEANER_BACKOFF_MS: Final = ConfigKey(
    name="log.cleaner.backoff.ms",
    type=int,
    default=15_000,
    at_least=0,
    doc="How long the cleaner waits when it has found no log to clean.",
    update=Update.CLUSTER_WIDE,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = ConfigKey(
    name="log.cleaner.dedupe.buffer.size",
    type=int,
    default=128 << 20,
    at_least=1 << 20,
    doc="The memory for the keys of the log that is being cleaned, in bytes. Each key takes 128. "
    "A log with more keys than fit is cleaned in several rounds.",
    update=Update.CLUSTER_WIDE,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND: Final = ConfigKey(
    name="log.cleaner.io.max.bytes.per.second",
    type=float,
    default=sys.float_info.max,
    at_least=1,
    doc="How many bytes per second the cleaner reads and writes.",
    update=Update.CLUSTER_WIDE,
)
