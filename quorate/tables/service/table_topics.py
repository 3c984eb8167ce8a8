"""The topics that are to have tables, and the pipeline that each of them is."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from quorate.client.admin import AdminClient
from quorate.client.results import ConfigEntity
from quorate.common.configuration import ConfigError, ConfigSpec, Configuration
from quorate.common.table_keys import (
    TABLE_COMMIT_INTERVAL_MS,
    TABLE_DEAD_LETTER_TOPIC,
    TABLE_FORMAT,
    TABLE_KEY_FORMAT,
    TABLE_KEYS,
    TABLE_LOCATION,
    TABLE_NAME,
    TABLE_PARTITION_BY,
    TABLE_PAUSED,
    TABLE_SNAPSHOT_RETENTION_MS,
    TABLE_SOURCE_OPTIONS,
    TABLE_TARGET_FILE_BYTES,
    TABLE_UPKEEP_INTERVAL_MS,
    TABLE_VALUE_FORMAT,
    TABLE_WRITE_MODE,
)
from quorate.pipeline.pipeline_config import PipelineConfig, parse_config
from quorate.spark.options.client_settings import PREFIX
from quorate.spark.options.option_table import (
    KEY_FORMAT,
    MAX_OFFSETS_PER_TRIGGER,
    VALUE_COLUMNS,
    VALUE_FORMAT,
)
from quorate.spark.options.typed_options import WITH_SCHEMA
from quorate.tables.service.service_config import ServiceConfig
from quorate.tables.write_mode import WriteMode

PIPELINE_PREFIX: Final = "table."
TOPICS_AT_ONCE: Final = 500
CLEANUP_POLICY: Final = "cleanup.policy"
UPSERT_OFFSETS_MAX: Final = 1_000_000
"""The offsets of a batch whose newest rows are collected in memory, unless the options say else."""
_SPEC: Final = ConfigSpec("table", TABLE_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTopic:
    """A topic that is to have a table. Two are equal if nothing has changed for their worker."""

    topic: str
    values: tuple[tuple[str, str], ...]
    """The keys ``table.*`` of the topic, sorted."""
    cleanup_policy: str = ""

    @property
    def configuration(self) -> Configuration:
        """The typed values.

        Raises:
            ConfigError: a value is wrong: a broker of another release has accepted it.
        """
        return _SPEC.parse(dict(self.values))

    @property
    def pipeline(self) -> str:
        """The name under which the quorum keeps the position."""
        return pipeline_of(self.topic)

    @property
    def is_paused(self) -> bool:
        """True if the table stands still."""
        return bool(self.configuration[TABLE_PAUSED])

    @property
    def write_mode(self) -> WriteMode:
        """The mode by which records change the table."""
        return WriteMode(self.configuration[TABLE_WRITE_MODE])

    @property
    def dead_letter_topic(self) -> str:
        """The topic of the records that do not fit their schemas; empty if there is none."""
        return self.configuration[TABLE_DEAD_LETTER_TOPIC]

    @property
    def commit_interval_ms(self) -> int:
        return self.configuration[TABLE_COMMIT_INTERVAL_MS]

    @property
    def upkeep_interval_ms(self) -> int:
        return self.configuration[TABLE_UPKEEP_INTERVAL_MS]

    @property
    def snapshot_retention_ms(self) -> int:
        return self.configuration[TABLE_SNAPSHOT_RETENTION_MS]


def pipeline_of(topic: str) -> str:
    """Return the name of the pipeline that keeps the table of a topic."""
    return f"{PIPELINE_PREFIX}{topic}"


def table_topics(admin: AdminClient, names: Sequence[str] | None = None) -> list[TableTopic]:
    """Return the topics that are to have tables, or those of the named ones.

    Raises:
        QuorateError: no broker answers.
    """
    found: list[TableTopic] = []
    topics = admin.list_topics() if names is None else list(names)
    keys = [*(key.name for key in TABLE_KEYS), CLEANUP_POLICY]
    for start in range(0, len(topics), TOPICS_AT_ONCE):
        entities = [
            ConfigEntity("topic", name, keys) for name in topics[start : start + TOPICS_AT_ONCE]
        ]
        for described in admin.describe_configs(entities):
            values = {one.name: one.value or "" for one in described.entries}
            cleanup_policy = values.pop(CLEANUP_POLICY, "")
            if values.get(TABLE_FORMAT.name):
                found.append(
                    TableTopic(
                        topic=described.entity_name,
                        values=tuple(sorted(values.items())),
                        cleanup_policy=cleanup_policy,
                    )
                )
    return found


def pipeline_config(table: TableTopic, service: ServiceConfig) -> PipelineConfig:
    """Return the pipeline that keeps the table of a topic.

    Raises:
        ConfigError: a value of the topic or of the service is wrong, or one is missing.
    """
    own = table.configuration
    location = own[TABLE_LOCATION]
    if table.dead_letter_topic == table.topic:
        raise ConfigError(
            f"{TABLE_DEAD_LETTER_TOPIC.name}={table.topic}: the dead letters of a table need a "
            "topic of their own"
        )
    if not location and not service.warehouse:
        raise ConfigError(
            f"topic {table.topic} does not say {TABLE_LOCATION.name}, and the table service has "
            "no tables.warehouse"
        )
    limits = _limits(table)
    values: dict[str, object] = {
        "name": table.pipeline,
        "source.kafka.bootstrap.servers": service.bootstrap_servers,
        "source.subscribe": table.topic,
        "sink.format": own[TABLE_FORMAT],
        "sink.path": location or f"{service.warehouse.rstrip('/')}/{table.topic}",
        "sink.table": own[TABLE_NAME] or re.sub(r"\W", "_", table.topic),
        "sink.partition.by": own[TABLE_PARTITION_BY],
        "sink.target.file.bytes": own[TABLE_TARGET_FILE_BYTES],
        "run.lease.ms": service.lease_ms,
    }
    values |= _with_prefix(f"source.{PREFIX}", service.security.items())
    values |= _with_prefix("source.", limits.items())
    values |= _with_prefix("source.", service.source.items())
    values |= _with_prefix("source.", _typed_options(own).items())
    values |= _with_prefix("source.", _source_options(own[TABLE_SOURCE_OPTIONS]).items())
    values |= _with_prefix("sink.catalog.", service.catalog.items())
    values |= _with_prefix("sink.storage.", service.storage.items())
    return parse_config(values)


def _limits(table: TableTopic) -> Mapping[str, str]:
    """Return the options that limit a batch, and check that the topic may be kept in its mode.

    Raises:
        ConfigError: keys are to be replaced, and the topic does not have to have keys.
    """
    if table.write_mode is not WriteMode.UPSERT:
        return {}
    if "compact" not in map(str.strip, table.cleanup_policy.split(",")):
        raise ConfigError(
            f"topic {table.topic}: {TABLE_WRITE_MODE.name}=upsert needs {CLEANUP_POLICY}=compact, "
            f"and it is {table.cleanup_policy}: only in a compacted topic does every record have a "
            f"key, and the newest one of each key stay; or set {TABLE_WRITE_MODE.name}=append"
        )
    return {MAX_OFFSETS_PER_TRIGGER.name: str(UPSERT_OFFSETS_MAX)}


def _with_prefix(prefix: str, items: Iterable[tuple[str, str]]) -> dict[str, object]:
    return {f"{prefix}{name}": value for name, value in items}


def _typed_options(own: Configuration) -> Mapping[str, str]:
    """Return the options that say what keys and values are; fields of values become columns."""
    options: dict[str, str] = {}
    if key := own[TABLE_KEY_FORMAT]:
        options[KEY_FORMAT.name] = key
    if value := own[TABLE_VALUE_FORMAT]:
        options[VALUE_FORMAT.name] = value
        if value in WITH_SCHEMA:
            options[VALUE_COLUMNS.name] = "flatten"
    return options


def _source_options(text: str) -> Mapping[str, str]:
    if not text.strip():
        return {}
    try:
        options = json.loads(text)
        return {str(name): _option_text(value) for name, value in options.items()}
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"{TABLE_SOURCE_OPTIONS.name}={text}: must be a JSON object of options ({error})"
        ) from error


def _option_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
