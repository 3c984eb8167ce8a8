"""The table of options. Each is declared once; the names are those of Spark's own Kafka source.

To add one: declare it here, read it with ``given[ITS_NAME]`` (`GivenOptions`).
"""

from typing import Final

from quorate.spark.offset_ranges import EARLIEST, LATEST
from quorate.spark.options.offset_positions import (
    LOG_POSITION,
    OFFSETS,
    TIME,
    TIMES,
    FromEdge,
    LogPosition,
    OffsetBound,
)
from quorate.spark.options.option_declaration import (
    BOOLEAN,
    DURATION,
    EVERYWHERE,
    NAMES,
    READ,
    SERVERS,
    TEXT,
    URLS,
    WRITE,
    AnyOption,
    Option,
    Scope,
    one_of,
    whole_number,
)
from quorate.spark.options.topic_subscription import (
    ASSIGNED,
    TOPIC_NAMES,
    TOPIC_PATTERN,
    Subscription,
)

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
    doc="The addresses of some brokers of the cluster.",
)
RETRIES_MAX: Final = Option(
    name="fetchOffset.numRetries",
    kind=whole_number(at_least=0),
    default=10,
    scopes=EVERYWHERE,
    doc="How many tries in a row may fail before a call to the cluster is given up.",
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
    doc="How long a leader may be silent during a read before the read is started again.",
)

# --- which partitions -----------------------------------------------------------------------------

SUBSCRIBE: Final[Option[Subscription | None]] = Option(
    name="subscribe",
    kind=TOPIC_NAMES,
    default=None,
    default_says="one of the three",
    scopes=READ,
    doc="The topics to read, by name.",
)
SUBSCRIBE_PATTERN: Final[Option[Subscription | None]] = Option(
    name="subscribePattern",
    kind=TOPIC_PATTERN,
    default=None,
    default_says="one of the three",
    scopes=READ,
    doc="The topics to read, by a pattern for their names.",
)
ASSIGN: Final[Option[Subscription | None]] = Option(
    name="assign",
    kind=ASSIGNED,
    default=None,
    default_says="one of the three",
    scopes=READ,
    doc="The partitions to read, one by one.",
)

# --- which offsets --------------------------------------------------------------------------------

STARTING_OFFSETS: Final[Option[OffsetBound | None]] = Option(
    name="startingOffsets",
    kind=OFFSETS,
    default=None,
    default_says="batch: earliest; stream: latest",
    scopes=READ,
    doc="The first offset to read. JSON must name every partition that is read. A batch query may "
    "not start at latest. A stream uses the option at its first start only.",
)
STARTING_OFFSETS_BY_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="startingOffsetsByTimestamp",
    kind=TIMES,
    default=None,
    scopes=READ,
    doc="Start each partition at the first record at or after a time. Wins over `startingOffsets`.",
)
STARTING_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="startingTimestamp",
    kind=TIME,
    default=None,
    scopes=READ,
    doc="Start all partitions at the first record at or after this time. Wins over the other two.",
)
STARTING_STRATEGY: Final = Option(
    name="startingOffsetsByTimestampStrategy",
    kind=one_of("error", "latest"),
    default="error",
    scopes=READ,
    doc="What happens if a partition has no record at or after the starting time: `error` fails "
    "the query, `latest` starts at the latest offset.",
)
ENDING_OFFSETS: Final[Option[OffsetBound | None]] = Option(
    name="endingOffsets",
    kind=OFFSETS,
    default=None,
    default_says="latest",
    scopes=_BATCH,
    refused_in=_STREAM,
    doc="The offset behind the last one to read. It may not be earliest.",
)
ENDING_OFFSETS_BY_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="endingOffsetsByTimestamp",
    kind=TIMES,
    default=None,
    scopes=_BATCH,
    refused_in=_STREAM,
    doc="End each partition before the first record at or after a time, or at the latest offset if "
    "there is none. Wins over `endingOffsets`.",
)
ENDING_TIMESTAMP: Final[Option[OffsetBound | None]] = Option(
    name="endingTimestamp",
    kind=TIME,
    default=None,
    scopes=_BATCH,
    refused_in=_STREAM,
    doc="End all partitions before the first record at or after this time. Wins over the other "
    "two.",
)
FAIL_ON_DATA_LOSS: Final = Option(
    name="failOnDataLoss",
    kind=BOOLEAN,
    default=True,
    scopes=READ | _METADATA,
    doc="Whether the query fails if the log no longer (or not yet) holds some of the offsets. If "
    "not, the query reads the offsets that are there, and logs a warning.",
)

ISOLATION_LEVEL: Final = Option(
    name="kafka.isolation.level",
    also="isolation.level",
    kind=one_of(READ_COMMITTED, READ_UNCOMMITTED),
    default=READ_COMMITTED,
    scopes=READ,
    doc="`read_committed` reads the records of committed transactions only, up to the first one "
    "that is still open. `read_uncommitted` reads all records, those of aborted transactions too.",
)

# --- how much at a time, and what of it -----------------------------------------------------------

INCLUDE_HEADERS: Final = Option(
    name="includeHeaders",
    kind=BOOLEAN,
    default=False,
    scopes=READ,
    doc="Whether the rows have the column `headers`.",
)
MIN_PARTITIONS: Final[Option[int | None]] = Option(
    name="minPartitions",
    kind=whole_number(at_least=1),
    default=None,
    scopes=READ,
    doc="The least number of Spark partitions, if there are so many offsets. The largest ranges "
    "are split to reach it.",
)
MAX_RECORDS_PER_PARTITION: Final[Option[int | None]] = Option(
    name="maxRecordsPerPartition",
    kind=whole_number(at_least=1),
    default=None,
    scopes=READ,
    doc="The largest number of offsets in a Spark partition. Larger ranges are split.",
)
MAX_OFFSETS_PER_TRIGGER: Final[Option[int | None]] = Option(
    name="maxOffsetsPerTrigger",
    kind=whole_number(at_least=1),
    default=None,
    scopes=_STREAM | _METADATA,
    doc="The largest number of offsets in a micro-batch. Each partition gets a share in proportion "
    "to the offsets that wait there.",
)
MIN_OFFSETS_PER_TRIGGER: Final[Option[int | None]] = Option(
    name="minOffsetsPerTrigger",
    kind=whole_number(at_least=1),
    default=None,
    scopes=_STREAM,
    doc="The number of offsets that a micro-batch waits for, but no longer than `maxTriggerDelay`.",
)
MAX_TRIGGER_DELAY_MS: Final = Option(
    name="maxTriggerDelay",
    kind=DURATION,
    default=15 * 60_000,
    default_says="15m",
    scopes=_STREAM,
    doc="The longest time that a micro-batch waits for `minOffsetsPerTrigger`.",
)
COMMIT_GROUP: Final[Option[str | None]] = Option(
    name="commitGroup",
    kind=TEXT,
    default=None,
    scopes=READ,
    doc="The consumer group that shows the progress of the query. The offsets are committed to it "
    "once the batch has succeeded. The group must have no members.",
)
COMMIT_GROUP_MAY_GO_BACK: Final = Option(
    name="commitGroupMayGoBack",
    kind=BOOLEAN,
    default=False,
    scopes=READ,
    doc="Whether a committed offset may go back if the group is ahead of the query. If not, it "
    "stays ahead.",
)
SHARE_GROUP: Final[Option[str | None]] = Option(
    name="shareGroup",
    kind=TEXT,
    default=None,
    scopes=_STREAM,
    refused_in=_BATCH,
    doc="The share group (KIP-932) whose records the query takes, instead of offsets. They are "
    "acknowledged once the batch has succeeded. Only with `subscribe`.",
)
GROUP_ID_PREFIX: Final[Option[str | None]] = Option(
    name="groupIdPrefix",
    kind=TEXT,
    default=None,
    scopes=frozenset(),
    doc="Has no effect, because the source joins no consumer group.",
)

# --- typed columns --------------------------------------------------------------------------------

_FORMATS: Final = one_of("binary", "string", "avro", "protobuf", "json")
VALUE_FORMAT: Final = Option(
    name="valueFormat",
    kind=_FORMATS,
    default="binary",
    scopes=READ | WRITE,
    doc="How values are decoded, or encoded by a write. `avro`, `protobuf` and `json` need a "
    "schema: `valueSchema`, or a registry.",
)
KEY_FORMAT: Final = Option(
    name="keyFormat",
    kind=_FORMATS,
    default="binary",
    scopes=READ | WRITE,
    doc="The same for keys.",
)
VALUE_SCHEMA: Final[Option[str | None]] = Option(
    name="valueSchema",
    kind=TEXT,
    default=None,
    default_says="the latest of the subject",
    scopes=READ | WRITE,
    doc="The schema of values. Avro: JSON. Protobuf: the text of a .proto file, or a "
    "FileDescriptorSet in base64. JSON: a JSON Schema, or columns as in `id bigint, name string`.",
)
KEY_SCHEMA: Final[Option[str | None]] = Option(
    name="keySchema",
    kind=TEXT,
    default=None,
    default_says="the latest of the subject",
    scopes=READ | WRITE,
    doc="The same for keys.",
)
VALUE_SUBJECT: Final[Option[str | None]] = Option(
    name="valueSubject",
    kind=TEXT,
    default=None,
    default_says="`TOPIC-value`",
    scopes=READ | WRITE,
    doc="The subject of the registry whose latest schema values have. It must be named where "
    "several topics are read.",
)
KEY_SUBJECT: Final[Option[str | None]] = Option(
    name="keySubject",
    kind=TEXT,
    default=None,
    default_says="`TOPIC-key`",
    scopes=READ | WRITE,
    doc="The same for keys.",
)
VALUE_MESSAGE: Final[Option[str | None]] = Option(
    name="valueMessage",
    kind=TEXT,
    default=None,
    default_says="the first of the schema",
    scopes=READ | WRITE,
    doc="The full name of the Protobuf message that values are.",
)
KEY_MESSAGE: Final[Option[str | None]] = Option(
    name="keyMessage",
    kind=TEXT,
    default=None,
    default_says="the first of the schema",
    scopes=READ | WRITE,
    doc="The same for keys.",
)
VALUE_COLUMNS: Final = Option(
    name="valueColumns",
    kind=one_of("struct", "flatten"),
    default="struct",
    scopes=READ,
    doc="`struct`: the fields of the value are in the column `value`. `flatten`: each one is a "
    "column of its own.",
)
VALUE_FIELDS: Final[Option[tuple[str, ...]]] = Option(
    name="valueFields",
    kind=NAMES,
    default=(),
    default_says="all",
    scopes=READ,
    doc="The fields of the value that are decoded, such as `id,amount`.",
)
MODE: Final = Option(
    name="mode",
    kind=one_of("failfast", "permissive"),
    default="failfast",
    scopes=READ,
    doc="What happens to a key or value that does not fit its schema: `failfast` fails the query; "
    "`permissive` makes it null, and puts its bytes into the column `_corrupt_value` (or "
    "`_corrupt_key`).",
)
REGISTRY_URL: Final[Option[tuple[str, ...]]] = Option(
    name="schema.registry.url",
    kind=URLS,
    default=(),
    default_says="none",
    scopes=READ | WRITE,
    doc="The schema registry. With it, records of Avro, Protobuf and JSON begin with the id of "
    "their schema, as Confluent's serializers write them; without it, they have no such prefix.",
)
REGISTRY_USER_INFO: Final[Option[str | None]] = Option(
    name="schema.registry.basic.auth.user.info",
    kind=TEXT,
    default=None,
    scopes=READ | WRITE,
    doc="`user:password` for the registry.",
)
REGISTRY_TOKEN: Final[Option[str | None]] = Option(
    name="schema.registry.bearer.auth.token",
    kind=TEXT,
    default=None,
    scopes=READ | WRITE,
    doc="A token for the registry, in place of user and password.",
)
REGISTRY_CA: Final[Option[str | None]] = Option(
    name="schema.registry.ssl.ca.location",
    kind=TEXT,
    default=None,
    default_says="the system's",
    scopes=READ | WRITE,
    doc="A PEM file with the authorities that are trusted to name the registry.",
)
REGISTRY_CERTIFICATE: Final[Option[str | None]] = Option(
    name="schema.registry.ssl.certificate.location",
    kind=TEXT,
    default=None,
    scopes=READ | WRITE,
    doc="A PEM file with the certificate of this client, for a registry that asks for one.",
)
REGISTRY_KEY: Final[Option[str | None]] = Option(
    name="schema.registry.ssl.key.location",
    kind=TEXT,
    default=None,
    default_says="the file of the certificate",
    scopes=READ | WRITE,
    doc="A PEM file with the key of this client.",
)

# --- writing --------------------------------------------------------------------------------------

TOPIC: Final[Option[str | None]] = Option(
    name="topic",
    kind=TEXT,
    default=None,
    default_says="the column `topic`",
    scopes=WRITE,
    doc="The topic of all rows. Wins over the column.",
)
COMPRESSION: Final = Option(
    name="kafka.compression.type",
    kind=one_of("none", "gzip", "snappy", "lz4", "zstd"),
    default="none",
    scopes=WRITE,
    doc="How batches are compressed. A batch that compression does not make smaller stays as it "
    "is.",
)
BATCH_BYTES: Final = Option(
    name="kafka.batch.size",
    kind=whole_number(at_least=1),
    default=512 << 10,
    scopes=WRITE,
    doc="The size of a batch in bytes before it is compressed. It is never more than the topic's "
    "`max.message.bytes`.",
)
DELIVERY_TIMEOUT_MS: Final = Option(
    name="kafka.delivery.timeout.ms",
    kind=whole_number(at_least=1),
    default=120_000,
    scopes=WRITE,
    doc="How long a partition may fail with retriable errors (no leader, too few in-sync replicas, "
    "a full disk) before the task fails.",
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
    doc="Spark's own option: where a streaming query keeps its checkpoint.",
)

# --- the metadata log -----------------------------------------------------------------------------

STARTING_OFFSET: Final[Option[LogPosition]] = Option(
    name="startingOffset",
    kind=LOG_POSITION,
    default=FromEdge(EARLIEST),
    scopes=_METADATA,
    doc="The first metadata offset to read. A stream uses the option at its first start only.",
)
ENDING_OFFSET: Final[Option[LogPosition]] = Option(
    name="endingOffset",
    kind=LOG_POSITION,
    default=FromEdge(LATEST),
    scopes=_METADATA,
    doc="The metadata offset behind the last one to read. A stream has no end.",
)
RECORD_TYPES: Final[Option[tuple[str, ...]]] = Option(
    name="recordTypes",
    kind=NAMES,
    default=(),
    default_says="all",
    scopes=_METADATA,
    doc="The types of records to read, such as `partition_change,isr_change`.",
)

OPTIONS: Final[tuple[AnyOption, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Option)
)
"""All options, in the order of the documentation."""
