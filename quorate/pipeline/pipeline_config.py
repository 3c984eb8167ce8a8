"""The file that describes a pipeline, in TOML. Each key is declared once, here.

name = "orders-lake"

[source]                                  # the options of Spark's format "quorate"
kafka.bootstrap.servers = "broker1:9092"
subscribe = "orders,payments"

[transform]
sql = "SELECT *, length(value) AS size FROM records WHERE value IS NOT NULL"

[sink]
path = "s3a://lake/orders"
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from quorate.client.security import is_security_option
from quorate.common.configuration import (
    ConfigError,
    ConfigKey,
    ConfigSpec,
    Configuration,
    as_text,
    read_toml,
)
from quorate.pipeline.folder_columns import check_folder_fields
from quorate.spark.errors import OptionError
from quorate.spark.options.client_settings import PREFIX
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_declaration import Option, Scope
from quorate.spark.options.option_table import ASSIGN as ASSIGN_OPTION
from quorate.spark.options.option_table import (
    COMMIT_GROUP,
    COMMIT_GROUP_MAY_GO_BACK,
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    KEY_SUBJECT,
    MAX_OFFSETS_PER_TRIGGER,
    MAX_RECORDS_PER_PARTITION,
    MIN_OFFSETS_PER_TRIGGER,
    STARTING_OFFSETS,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_STRATEGY,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    VALUE_SUBJECT,
)
from quorate.spark.options.read_options import StreamOptions, parse_stream_options
from quorate.spark.options.topic_subscription import Subscription
from quorate.tables.partitioning import PartitionField, parse_partitioning
from quorate.tables.table_config import FORMATS, TARGET_BYTES, TableConfig, table_config

PARQUET: Final = "parquet"

NAME: Final = ConfigKey(
    name="name",
    type=str,
    pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}",
    form="letters, digits, dots, dashes and underscores, the first a letter or a digit",
    doc="The cluster keeps the offsets of the pipeline under this name.",
)
SQL: Final = ConfigKey(
    name="transform.sql",
    type=str,
    default="",
    doc="The query over the view records that transforms the records. It leaves topic, partition, "
    "offset and timestamp as they are. If it is empty, the records are stored as they are.",
)
PATH: Final = ConfigKey(
    name="sink.path",
    type=str,
    doc="The folder for the Parquet files (any path that Spark understands), or of the table.",
)
FORMAT: Final = ConfigKey(
    name="sink.format",
    type=str,
    default="parquet",
    one_of=(PARQUET, *FORMATS),
    doc="What is written: a folder of Parquet files, an Iceberg table or a Delta table.",
)
TABLE: Final = ConfigKey(
    name="sink.table",
    type=str,
    default="",
    doc="The name of a table, namespace.table in an Iceberg catalog. If it is empty, the name of "
    "the pipeline is used.",
)
PARTITION_BY: Final = ConfigKey(
    name="sink.partition.by",
    type=str,
    default="",
    doc="The partition transforms of a new table, or the folders of Parquet files below topic and "
    "partition: hour(COLUMN), day(COLUMN), identity(COLUMN) and, for tables, bucket(N,COLUMN), "
    "with commas between. If it is empty, a table is not partitioned, and folders are by date.",
)
TARGET_FILE_BYTES: Final = ConfigKey(
    name="sink.target.file.bytes",
    type=int,
    default=TARGET_BYTES,
    at_least=1 << 10,
    doc="The size at which a data file of a table is complete.",
)
COMPRESSION: Final = ConfigKey(
    name="sink.compression",
    type=str,
    default="zstd",
    one_of=("zstd", "snappy", "gzip", "lz4", "none"),
    doc="The compression of the Parquet files.",
)
LEASE_MS: Final = ConfigKey(
    name="run.lease.ms",
    type=int,
    default=30_000,
    at_least=1_000,
    at_most=3_600_000,
    doc="How long a run may be silent. After that it counts as dead, and another one may begin.",
)

SPEC: Final = ConfigSpec(
    "pipeline",
    (NAME, SQL, PATH, FORMAT, TABLE, PARTITION_BY, TARGET_FILE_BYTES, COMPRESSION, LEASE_MS),
)
SOURCE: Final = "source."
CATALOG: Final = "sink.catalog."
STORAGE: Final = "sink.storage."
"""The prefixes of properties that are passed on as they are, to pyiceberg and the storage."""

SOURCE_DEFAULTS: Final[Mapping[str, str]] = {
    STARTING_OFFSETS.name: "earliest",
    MAX_OFFSETS_PER_TRIGGER.name: "5000000",
    MAX_RECORDS_PER_PARTITION.name: "1000000",
}
"""The defaults of a pipeline that differ from those of a stream: it reads everything, a batch is
one commit, and several tasks make several files of a large partition."""

_PIPELINE_ONLY: Final[tuple[Option[Any], ...]] = (
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    ASSIGN_OPTION,
    STARTING_OFFSETS,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_TIMESTAMP,
    STARTING_STRATEGY,
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    COMMIT_GROUP,
    COMMIT_GROUP_MAY_GO_BACK,
)
"""Options that only the pipeline as a whole applies. The Spark query of a single batch must not
see them: they choose offsets, or the consumer group that the offsets are committed to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """The checked content of a pipeline's file."""

    name: str
    source: StreamOptions
    reading: Mapping[str, str]
    """The options that the query of every batch has."""
    include_headers: bool
    sql: str
    path: str
    compression: str
    lease_ms: int
    table: TableConfig | None = None
    """The table that is written; None for a folder of Parquet files."""
    folder_fields: tuple[PartitionField, ...] = ()
    """By what the folders of Parquet files are named below topic and partition; empty for date."""


def read_config(path: Path) -> PipelineConfig:
    """Read and check a pipeline's file.

    Raises:
        ConfigError: the file cannot be read, or a key in it is unknown, missing or wrong.
    """
    try:
        return parse_config(read_toml(path))
    except ConfigError as error:
        if str(path) in str(error):
            raise
        raise ConfigError(f"{path}: {error}") from error


def parse_config(values: Mapping[str, object]) -> PipelineConfig:
    """Check the keys and values of a pipeline's file.

    Raises:
        ConfigError: a key is unknown, missing or wrong; the message names the nearest known key.
    """
    source = {
        key.removeprefix(SOURCE): _as_option(key, value)
        for key, value in values.items()
        if key.startswith(SOURCE)
    }
    passed_on = (SOURCE, CATALOG, STORAGE)
    own = SPEC.parse({key: one for key, one in values.items() if not key.startswith(passed_on)})
    options = {**SOURCE_DEFAULTS, **source}
    if not {name.lower() for name in source}.isdisjoint(
        {STARTING_TIMESTAMP.name.lower(), STARTING_OFFSETS_BY_TIMESTAMP.name.lower()}
    ):
        del options[STARTING_OFFSETS.name]
    options = _without_repetitions(options)
    try:
        given = GivenOptions(options, Scope.STREAM)
        streaming = parse_stream_options(options)
        include_headers, fails = given[INCLUDE_HEADERS], given[FAIL_ON_DATA_LOSS]
    except OptionError as error:
        raise ConfigError(f"[source] {error}") from error
    assert streaming.reading.fail_on_data_loss is fails
    unread = {name.lower() for option in _PIPELINE_ONLY for name in option.names}
    reading = {name: text for name, text in options.items() if name.lower() not in unread}
    return PipelineConfig(
        name=own[NAME],
        source=replace(streaming, limits=replace(streaming.limits, at_least=None)),
        reading={**_subjects(given, streaming.reading.subscription), **reading},
        include_headers=include_headers,
        sql=own[SQL].strip().rstrip(";"),
        path=own[PATH],
        compression=own[COMPRESSION],
        lease_ms=own[LEASE_MS],
        table=_table(own, values),
        folder_fields=_folder_fields(own),
    )


def _folder_fields(own: Configuration) -> tuple[PartitionField, ...]:
    if own[FORMAT] != PARQUET:
        return ()
    fields = parse_partitioning(own[PARTITION_BY])
    check_folder_fields(fields)
    return fields


def _subjects(given: GivenOptions, subscription: Subscription) -> dict[str, str]:
    """Return the subjects of a pipeline's only topic, which the query of a batch does not name."""
    topics = {*subscription.topics, *(subscription.partitions or ())}
    if len(topics) != 1:
        return {}
    [topic] = topics
    about = {KEY_SUBJECT: "key", VALUE_SUBJECT: "value"}
    return {
        option.name: f"{topic}-{suffix}"
        for option, suffix in about.items()
        if not given.has(option)
    }


def _table(own: Configuration, values: Mapping[str, object]) -> TableConfig | None:
    if own[FORMAT] == PARQUET:
        if given := [key for key in values if key.startswith((CATALOG, STORAGE))]:
            raise ConfigError(f"{given[0]} is of a table: give sink.format = iceberg or delta")
        return None
    return table_config(
        format=own[FORMAT],
        location=own[PATH],
        name=own[TABLE] or own[NAME],
        partitioning=parse_partitioning(own[PARTITION_BY]),
        target_bytes=own[TARGET_FILE_BYTES],
        compression=own[COMPRESSION],
        catalog=properties_below(CATALOG, values),
        storage=properties_below(STORAGE, values),
    )


def properties_below(prefix: str, values: Mapping[str, object]) -> dict[str, str]:
    """Return the properties with a prefix, without it, as text."""
    return {
        key.removeprefix(prefix): as_text(value)
        for key, value in values.items()
        if key.startswith(prefix)
    }


def _as_option(key: str, value: object) -> str:
    """Return a TOML value as the text of a Spark option."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    raise ConfigError(f"{key}={value}: must be text or a number, as Spark's options are")


def _without_repetitions(options: Mapping[str, str]) -> dict[str, str]:
    """Keep the last of several options whose names differ only in case."""
    by_name = {name.lower(): (name, text) for name, text in options.items()}
    return dict(by_name.values())


def security_options(config: PipelineConfig) -> dict[str, str]:
    """Return the security options of the source, as the admin client takes them."""
    return {
        name.lower().removeprefix(PREFIX): text
        for name, text in config.reading.items()
        if is_security_option(name.lower().removeprefix(PREFIX))
    }
