"""The keys of topics that are kept as tables: declared here once, for brokers and table services.

Brokers only keep them. `quorate tables run` acts on them.
"""

from typing import Any, Final

from quorate.common.configuration import ConfigKey

FORMATS: Final = ("", "string", "json", "avro", "protobuf")
"""What keys and values can be; empty for bytes."""
_TRANSFORM: Final = r"\s*((hour|day|identity)\(\s*\w+\s*\)|bucket\(\s*\d+\s*,\s*\w+\s*\))\s*"

TABLE_FORMAT: Final = ConfigKey(
    name="table.format",
    type=str,
    default="",
    one_of=("", "iceberg", "delta"),
    doc="The format of the table that a table service keeps of the topic: iceberg or delta. Empty, "
    "there is no table.",
)
TABLE_LOCATION: Final = ConfigKey(
    name="table.location",
    type=str,
    default="",
    doc="The folder of the table, such as s3://bucket/orders. Empty, it is a folder with the name "
    "of the topic in the warehouse of the table service.",
)
TABLE_NAME: Final = ConfigKey(
    name="table.name",
    type=str,
    default="",
    pattern=r"([\w-]+(\.[\w-]+)*)?",
    form="NAMESPACE.TABLE, of letters, digits, _ and -",
    doc="The name of an Iceberg table in its catalog. Empty, it is made of the topic's.",
)
TABLE_PARTITION_BY: Final = ConfigKey(
    name="table.partition.by",
    type=str,
    default="",
    pattern=rf"({_TRANSFORM}(,{_TRANSFORM})*)?",
    form="hour(COLUMN), day(COLUMN), identity(COLUMN) or bucket(N,COLUMN), with commas between",
    doc="The partition transforms of a new table.",
)
TABLE_WRITE_MODE: Final = ConfigKey(
    name="table.write.mode",
    type=str,
    default="append",
    one_of=("append", "upsert"),
    doc="What a record does to the table: append adds a row; upsert replaces the row of the same "
    "key, and a record without a value removes it. upsert needs cleanup.policy=compact.",
)
TABLE_TARGET_FILE_BYTES: Final = ConfigKey(
    name="table.target.file.bytes",
    type=int,
    default=128 << 20,
    at_least=1 << 10,
    at_most=1 << 40,
    doc="The size at which a data file of the table is complete.",
)
TABLE_COMMIT_INTERVAL_MS: Final = ConfigKey(
    name="table.commit.interval.ms",
    type=int,
    default=5_000,
    at_least=100,
    at_most=24 * 3_600_000,
    doc="The time between two commits of the table while there are new records.",
)
TABLE_UPKEEP_INTERVAL_MS: Final = ConfigKey(
    name="table.upkeep.interval.ms",
    type=int,
    default=600_000,
    at_least=0,
    at_most=365 * 24 * 3_600_000,
    doc="The time between two times at which small files are joined and old snapshots are "
    "forgotten; 0 is never.",
)
TABLE_SNAPSHOT_RETENTION_MS: Final = ConfigKey(
    name="table.snapshot.retention.ms",
    type=int,
    default=6 * 3_600_000,
    at_least=60_000,
    at_most=2**53,
    doc="How long earlier snapshots of an Iceberg table stay readable.",
)
TABLE_SOURCE_OPTIONS: Final = ConfigKey(
    name="table.source.options",
    type=str,
    default="",
    doc="Options with which the topic is read, as a JSON object of the options of Spark's format "
    'quorate: {"valueFormat":"json","failOnDataLoss":"false"}.',
)
TABLE_KEY_FORMAT: Final = ConfigKey(
    name="table.key.format",
    type=str,
    default="",
    one_of=FORMATS,
    doc="What the keys of records are: string, json, avro or protobuf. Empty, the column key has "
    "bytes.",
)
TABLE_VALUE_FORMAT: Final = ConfigKey(
    name="table.value.format",
    type=str,
    default="",
    one_of=FORMATS,
    doc="What the values of records are: string, json, avro or protobuf. The fields of json, avro "
    "and protobuf are columns of the table, by the latest schema of the subject TOPIC-value. "
    "Empty, the column value has bytes.",
)
TABLE_DEAD_LETTER_TOPIC: Final = ConfigKey(
    name="table.dead.letter.topic",
    type=str,
    default="",
    pattern=r"[A-Za-z0-9._-]{0,249}",
    form="the name of a topic",
    doc="The topic that gets the records whose key or value does not fit its schema. Empty, such a "
    "record stops the table.",
)
TABLE_PAUSED: Final = ConfigKey(
    name="table.paused",
    type=bool,
    default=False,
    doc="Whether the table stands still. A table that goes on begins where it stopped.",
)

TABLE_KEYS: Final[tuple[ConfigKey[Any], ...]] = (
    TABLE_FORMAT,
    TABLE_LOCATION,
    TABLE_NAME,
    TABLE_PARTITION_BY,
    TABLE_WRITE_MODE,
    TABLE_TARGET_FILE_BYTES,
    TABLE_COMMIT_INTERVAL_MS,
    TABLE_UPKEEP_INTERVAL_MS,
    TABLE_SNAPSHOT_RETENTION_MS,
    TABLE_KEY_FORMAT,
    TABLE_VALUE_FORMAT,
    TABLE_DEAD_LETTER_TOPIC,
    TABLE_SOURCE_OPTIONS,
    TABLE_PAUSED,
)
