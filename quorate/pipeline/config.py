"""A pipeline's file: TOML, each key declared once.

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

from metadata_log.configuration import ConfigError, ConfigKey, ConfigSpec
from quorate.client.security import is_security_option
from quorate.spark.errors import OptionError
from quorate.spark.options.client_settings import PREFIX
from quorate.spark.options.declaration import Option, Scope
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.table import ASSIGN as ASSIGN_OPTION
from quorate.spark.options.table import (
    COMMIT_GROUP,
    COMMIT_GROUP_MAY_GO_BACK,
    FAIL_ON_DATA_LOSS,
    INCLUDE_HEADERS,
    MAX_OFFSETS_PER_TRIGGER,
    MAX_RECORDS_PER_PARTITION,
    MIN_OFFSETS_PER_TRIGGER,
    STARTING_OFFSETS,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_STRATEGY,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
)
from quorate.spark.streaming.stream_options import StreamOptions, parse_stream_options
from quorum.config_file import read_toml

NAME: Final = ConfigKey(
    name="name",
    type=str,
    pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}",
    form="letters, digits, dots, dashes and underscores, the first a letter or a digit",
    doc="Under this name the cluster keeps how far the pipeline is.",
)
SQL: Final = ConfigKey(
    name="transform.sql",
    type=str,
    default="",
    doc="What becomes of the records: a query over the view records. It leaves topic, partition, "
    "offset and timestamp as they are. Empty: nothing becomes of them.",
)
PATH: Final = ConfigKey(
    name="sink.path",
    type=str,
    doc="The folder for the Parquet files, by any path that Spark understands.",
)
FORMAT: Final = ConfigKey(
    name="sink.format",
    type=str,
    default="parquet",
    one_of=("parquet",),
    doc="The form of the files.",
)
COMPRESSION: Final = ConfigKey(
    name="sink.compression",
    type=str,
    default="zstd",
    one_of=("zstd", "snappy", "gzip", "lz4", "none"),
    doc="Of the Parquet files.",
)
LEASE_MS: Final = ConfigKey(
    name="run.lease.ms",
    type=int,
    default=30_000,
    at_least=1_000,
    at_most=3_600_000,
    doc="A run that is not heard of for so long counts as dead, and another one may begin.",
)

SPEC: Final = ConfigSpec("pipeline", (NAME, SQL, PATH, FORMAT, COMPRESSION, LEASE_MS))
SOURCE: Final = "source."

SOURCE_DEFAULTS: Final[Mapping[str, str]] = {
    STARTING_OFFSETS.name: "earliest",
    MAX_OFFSETS_PER_TRIGGER.name: "5000000",
    MAX_RECORDS_PER_PARTITION.name: "1000000",
}
"""Where a pipeline's defaults are others than a stream's: it reads everything, a batch is one
commit, and of a large partition several tasks make several files."""

_OF_THE_WHOLE: Final[tuple[Option[Any], ...]] = (
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
"""Options of the pipeline that its batches, one by one, must not heed: which offsets, and whom to
tell of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """A pipeline's file, checked. ``reading``: the options that each batch shares."""

    name: str
    source: StreamOptions
    reading: Mapping[str, str]
    include_headers: bool
    sql: str
    path: str
    compression: str
    lease_ms: int


def read_config(path: Path) -> PipelineConfig:
    """
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
    """
    Raises:
        ConfigError: a key is unknown, missing or wrong; names the nearest.
    """
    source = {
        key.removeprefix(SOURCE): _as_option(key, value)
        for key, value in values.items()
        if key.startswith(SOURCE)
    }
    own = SPEC.parse({key: value for key, value in values.items() if not key.startswith(SOURCE)})
    options = {**SOURCE_DEFAULTS, **source}
    if not {name.lower() for name in source}.isdisjoint(
        {STARTING_TIMESTAMP.name.lower(), STARTING_OFFSETS_BY_TIMESTAMP.name.lower()}
    ):
        del options[STARTING_OFFSETS.name]
    options = _once(options)
    try:
        given = GivenOptions(options, Scope.STREAM)
        streaming = parse_stream_options(options)
        include_headers, fails = given[INCLUDE_HEADERS], given[FAIL_ON_DATA_LOSS]
    except OptionError as error:
        raise ConfigError(f"[source] {error}") from error
    assert streaming.reading.fail_on_data_loss is fails
    unread = {name.lower() for option in _OF_THE_WHOLE for name in option.names}
    return PipelineConfig(
        name=own[NAME],
        source=replace(streaming, limits=replace(streaming.limits, at_least=None)),
        reading={name: text for name, text in options.items() if name.lower() not in unread},
        include_headers=include_headers,
        sql=own[SQL].strip().rstrip(";"),
        path=own[PATH],
        compression=own[COMPRESSION],
        lease_ms=own[LEASE_MS],
    )


def _as_option(key: str, value: object) -> str:
    """As Spark's options are written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    raise ConfigError(f"{key}={value}: must be text or a number, as Spark's options are")


def _once(options: Mapping[str, str]) -> dict[str, str]:
    """Options are case-insensitive: the one that comes last counts."""
    by_name = {name.lower(): (name, text) for name, text in options.items()}
    return dict(by_name.values())


def security_options(config: PipelineConfig) -> dict[str, str]:
    """How to prove oneself, for the admin client: those of the source."""
    return {
        name.lower().removeprefix(PREFIX): text
        for name, text in config.reading.items()
        if is_security_option(name.lower().removeprefix(PREFIX))
    }
