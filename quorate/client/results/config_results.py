"""Configuration: requests to describe and change it, and their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from quorate.client.results.item_outcome import ItemOutcome, outcome_of
from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Keys of one entity to set, or to remove where the value is None; other keys are kept.

    ``entity_type`` is "topic", "broker", "broker-logger" or "client-metrics". The ``entity_name``
    of a broker and of its loggers is its id; for brokers, "" stands for all without a value of
    their own. ``appended`` and ``subtracted`` hold items, separated by commas, to add to keys that
    are lists and to remove from them.
    """

    entity_type: str
    entity_name: str
    values: Mapping[str, str | None] = field(default_factory=dict)
    appended: Mapping[str, str] = field(default_factory=dict)
    subtracted: Mapping[str, str] = field(default_factory=dict)

    def to_proto(self) -> admin_pb2.ConfigChange:
        return admin_pb2.ConfigChange(
            entity_type=self.entity_type,
            entity_name=self.entity_name,
            values={key: value for key, value in self.values.items() if value is not None},
            removed=[key for key, value in self.values.items() if value is None],
            appended=self.appended,
            subtracted=self.subtracted,
        )


@dataclass(frozen=True, slots=True)
class ConfigReplacement:
    """All keys that one entity is to have; keys that are not named return to their defaults."""

    entity_type: str
    entity_name: str
    values: Mapping[str, str]

    def to_proto(self) -> admin_pb2.ConfigReplacement:
        return admin_pb2.ConfigReplacement(
            entity_type=self.entity_type, entity_name=self.entity_name, values=self.values
        )


@dataclass(frozen=True, slots=True)
class ConfigEntity:
    """An entity whose configuration is requested; ``keys`` selects keys, and without it all are
    returned."""

    entity_type: str
    entity_name: str
    keys: Sequence[str] = ()

    def to_proto(self) -> admin_pb2.ConfigEntity:
        return admin_pb2.ConfigEntity(
            entity_type=self.entity_type, entity_name=self.entity_name, keys=self.keys
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResult(ItemOutcome):
    """The result for one entity."""

    entity_type: str
    entity_name: str

    @classmethod
    def from_proto(cls, result: admin_pb2.ConfigResult) -> "ConfigResult":
        return cls(
            entity_type=result.entity_type,
            entity_name=result.entity_name,
            **outcome_of(result),
        )


class ConfigSource(Enum):
    """The place where a value is set; names and numbers are Kafka's."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A place that gives a key a value: the key's name there and the value, None for a secret."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One key: the value in force, None for a secret, and its source.

    ``synonyms`` lists every place that gives the key a value; the first one is in force.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str

    @classmethod
    def from_proto(cls, entry: admin_pb2.ConfigEntry) -> "ConfigEntry":
        return cls(
            name=entry.name,
            value=entry.value if entry.HasField("value") else None,
            source=_source(entry.source),
            read_only=entry.read_only,
            sensitive=entry.sensitive,
            synonyms=tuple(
                ConfigSynonym(
                    name=one.name,
                    value=None if entry.sensitive else one.value,
                    source=_source(one.source),
                )
                for one in entry.synonyms
            ),
            documentation=entry.documentation,
        )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDescription(ItemOutcome):
    """The configuration of one entity, sorted by key."""

    entity_type: str
    entity_name: str
    entries: tuple[ConfigEntry, ...]

    @classmethod
    def from_proto(cls, result: admin_pb2.DescribedConfig) -> "ConfigDescription":
        return cls(
            entity_type=result.entity_type,
            entity_name=result.entity_name,
            **outcome_of(result),
            entries=tuple(map(ConfigEntry.from_proto, result.entries)),
        )
