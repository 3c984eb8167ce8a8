"""The options of the source, each declared once: Spark's own Kafka source, format name changed.

To add one: declare it here, read it with ``given[ITS_NAME]`` (`GivenOptions`).
"""

from typing import Final

from quorate.spark.options.declaration import (
    BOOLEAN,
    DURATION,
    EVERYWHERE,
    NAMES,
    READ,
    SERVERS,
    TEXT,
    WRITE,
    AnyOption,
    Option,
    Scope,
    one_of,
    whole_number,
)
from quorate.spark.options.offset_bounds import OFFSETS, TIME, TIMES, OffsetBound
from quorate.spark.options.positions import LOG_POSITION, FromEdge, LogPosition
from quorate.spark.options.subscription import ASSIGNED, TOPIC_NAMES, TOPIC_PATTERN, Subscription
from quorate.spark.ranges import EARLIEST, LATEST

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"

_BATCH: Final = frozenset({Scope.BATCH})
_STREAM: Final = frozenset({Scope.STREAM})
_METADATA: Final = frozenset({Scope.METADATA})

# --- which cluster --------------------------------------------------------------------------------

BOOTSTRAP_SERVERS: Final[Option[str | None]] = Option(
    name="kafka.bootstrap.servers",
    also="bootstrap.servers",
    kind=SERVERS,
    default=None,
    default_says="required",
    scopes=EVERYWHERE,
    doc="Some brokers of the cluster.",
)
RETRIES_MAX: Final = Option(
    name="fetchOffset.numRetries",
    kind=whole_number(at_least=0),
    default=10,
    scopes=EVERYWHERE,
    doc="Tries in a row without progress after which a call to the cluster is given up.",
)
RETRY_INTERVAL_MS: Final = Option(
    name="fetchOffset.retryIntervalMs",
    kind=whole_number(at_least=1),
    default=100,
    scopes=EVERYWHERE,
    doc="The first pause between two tries; it doubles up to two seconds.",
)
FRAME_TIMEOUT_MS: Final = Option(
    name="kafkaConsumer.pollTimeoutMs",
    kind=whole_number(at_least=1),
    default=120_000,
    scopes=READ | _METADATA,
    doc="Silence of a leader while it is read from, after which it is asked again.",
)

# --- which partitions -----------------------------------------------------------------------------

SUBSCRIBE: Final[Option[Subscription | None]] = Option(
    name="subscribe",
    kind=TOPIC_NAMES,
    default=None,
    default_says="one of the three",
    scopes=READ,
    doc="Topics by name.",
)
SUBSCRIBE_PATTERN: Final[Option[Subscription | None]] = Option(
    name="subscribePattern",
    kind=TOPIC_PATTERN,
    default=None,
    default_says="one of the three",
    scopes=READ,
    doc="Topics by pattern.",
)
ASSIGN: Final[Option[Subscription | None]] = Option(
    name="assign",
    kind=ASSIGNED,
    default=None,
    default_says="one of the three",
    scopes=READ,
    doc="Partitions one by one.",
)

# --- which offsets --------------------------------------------------------------------------------

STARTING_OFFSETS: Final[Option[OffsetBound | None]] = Option(
    name="startingOffsets",
    kind=OFFSETS,
    default=None,
    default_says="batch: earliest; stream: latest",
    scopes=READ,
    doc="The first offset. JSON names every partition that is read. A batch may not start at "
    "latest. A stream heeds it at its first start only.",
)
STARTING_OFFSETS_BY_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="startingOffsetsByTimestamp",
    kind=TIMES,
    default=None,
    scopes=READ,
    doc="Starts at the first record at or after a time, for each partition; goes before "
    "`startingOffsets`.",
)
STARTING_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="startingTimestamp",
    kind=TIME,
    default=None,
    scopes=READ,
    doc="The same for all partitions; goes before both.",
)
STARTING_STRATEGY: Final = Option(
    name="startingOffsetsByTimestampStrategy",
    kind=one_of("error", "latest"),
    default="error",
    scopes=READ,
    doc="What becomes of a partition without a record at or after the starting time.",
)
ENDING_OFFSETS: Final[Option[OffsetBound | None]] = Option(
    name="endingOffsets",
    kind=OFFSETS,
    default=None,
    default_says="latest",
    scopes=_BATCH,
    refused_in=_STREAM,
    doc="The offset behind the last one; may not be earliest.",
)
ENDING_OFFSETS_BY_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="endingOffsetsByTimestamp",
    kind=TIMES,
    default=None,
    scopes=_BATCH,
    refused_in=_STREAM,
    doc="Ends before the first record at or after a time (without one: at the latest offset), for "
    "each partition; goes before `endingOffsets`.",
)
ENDING_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="endingTimestamp",
    kind=TIME,
    default=None,
    scopes=_BATCH,
    refused_in=_STREAM,
    doc="The same for all partitions; goes before both.",
)
FAIL_ON_DATA_LOSS: Final = Option(
    name="failOnDataLoss",
    kind=BOOLEAN,
    default=True,
    scopes=READ | _METADATA,
    doc="Whether offsets that the log no longer (or not yet) holds fail the query; else what is "
    "there is read, and a warning is logged.",
)

ISOLATION_LEVEL: Final = Option(
    name="kafka.isolation.level",
    also="isolation.level",
    kind=one_of(READ_COMMITTED, READ_UNCOMMITTED),
    default=READ_COMMITTED,
    scopes=READ,
    doc="Whether records of transactions are read when those were committed, up to the first one "
    "that is still open; or all there are, also of aborted ones.",
)

# --- how much at a time, and what of it -----------------------------------------------------------

INCLUDE_HEADERS: Final = Option(
    name="includeHeaders",
    kind=BOOLEAN,
    default=False,
    scopes=READ,
    doc="Adds the column `headers`.",
)
MIN_PARTITIONS: Final[Option[int | None]] = Option(
    name="minPartitions",
    kind=whole_number(at_least=1),
    default=None,
    scopes=READ,
    doc="At least so many Spark partitions, if there are so many offsets: the largest ranges are "
    "split.",
)
MAX_RECORDS_PER_PARTITION: Final[Option[int | None]] = Option(
    name="maxRecordsPerPartition",
    kind=whole_number(at_least=1),
    default=None,
    scopes=READ,
    doc="At most so many offsets in a Spark partition: larger ranges are split.",
)
MAX_OFFSETS_PER_TRIGGER: Final[Option[int | None]] = Option(
    name="maxOffsetsPerTrigger",
    kind=whole_number(at_least=1),
    default=None,
    scopes=_STREAM | _METADATA,
    doc="At most so many offsets in a micro-batch, shared in proportion to what waits.",
)
MIN_OFFSETS_PER_TRIGGER: Final[Option[int | None]] = Option(
    name="minOffsetsPerTrigger",
    kind=whole_number(at_least=1),
    default=None,
    scopes=_STREAM,
    doc="A micro-batch waits for so many offsets, but no longer than `maxTriggerDelay`.",
)
MAX_TRIGGER_DELAY_MS: Final = Option(
    name="maxTriggerDelay",
    kind=DURATION,
    default=15 * 60_000,
    default_says="15m",
    scopes=_STREAM,
    doc="The longest wait for `minOffsetsPerTrigger`.",
)
COMMIT_GROUP: Final[Option[str | None]] = Option(
    name="commitGroup",
    kind=TEXT,
    default=None,
    scopes=READ,
    doc="The consumer group that is to show how far the query is: what was read is committed to "
    "it once the batch has succeeded. It must have no members.",
)
COMMIT_GROUP_MAY_GO_BACK: Final = Option(
    name="commitGroupMayGoBack",
    kind=BOOLEAN,
    default=False,
    scopes=READ,
    doc="Whether the group is also set back, where it is ahead of the query; else it stays ahead.",
)
GROUP_ID_PREFIX: Final[Option[str | None]] = Option(
    name="groupIdPrefix",
    kind=TEXT,
    default=None,
    scopes=frozenset(),
    doc="Without effect: the source joins no consumer group.",
)

# --- writing --------------------------------------------------------------------------------------

TOPIC: Final[Option[str | None]] = Option(
    name="topic",
    kind=TEXT,
    default=None,
    default_says="the column `topic`",
    scopes=WRITE,
    doc="The topic of all rows; wins over the column.",
)
COMPRESSION: Final = Option(
    name="kafka.compression.type",
    kind=one_of("none", "gzip", "snappy", "lz4", "zstd"),
    default="none",
    scopes=WRITE,
    doc="How batches are compressed; one that it makes no smaller stays as it is.",
)
BATCH_BYTES: Final = Option(
    name="kafka.batch.size",
    kind=whole_number(at_least=1),
    default=512 << 10,
    scopes=WRITE,
    doc="Bytes of a batch before it is compressed; never more than the topic's "
    "`max.message.bytes`.",
)
DELIVERY_TIMEOUT_MS: Final = Option(
    name="kafka.delivery.timeout.ms",
    kind=whole_number(at_least=1),
    default=120_000,
    scopes=WRITE,
    doc="How long a partition may go on refusing what another try may heal (no leader, too few "
    "in-sync replicas, a full disk) before the task fails.",
)
REQUEST_TIMEOUT_MS: Final = Option(
    name="kafka.request.timeout.ms",
    kind=whole_number(at_least=1),
    default=30_000,
    scopes=WRITE,
    doc="How long a leader may wait for its in-sync replicas before the batch is sent again.",
)
CHECKPOINT_LOCATION: Final[Option[str | None]] = Option(
    name="checkpointLocation",
    kind=TEXT,
    default=None,
    scopes=WRITE,
    doc="Spark's own: where a streaming query keeps its progress.",
)

# --- the metadata log -----------------------------------------------------------------------------

STARTING_OFFSET: Final[Option[LogPosition]] = Option(
    name="startingOffset",
    kind=LOG_POSITION,
    default=FromEdge(EARLIEST),
    scopes=_METADATA,
    doc="The first metadata offset. A stream heeds it at its first start only.",
)
ENDING_OFFSET: Final[Option[LogPosition]] = Option(
    name="endingOffset",
    kind=LOG_POSITION,
    default=FromEdge(LATEST),
    scopes=_METADATA,
    doc="The metadata offset behind the last one. A stream has none.",
)
RECORD_TYPES: Final[Option[tuple[str, ...]]] = Option(
    name="recordTypes",
    kind=NAMES,
    default=(),
    default_says="all",
    scopes=_METADATA,
    doc="Only records of these types, as `partition_change,isr_change`.",
)

OPTIONS: Final[tuple[AnyOption, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Option)
)
"""All of the above, in the order of the documentation."""
