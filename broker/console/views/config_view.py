"""Configurations as people look at them: what is in force, and what it overrides. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from quorate.broker.kafka.wire.codec import Message

SOURCES: Final = {
    1: "topic",
    2: "broker, changed while it runs",
    3: "all brokers, changed while they run",
    4: "configuration file",
    5: "default",
    7: "client metrics",
    8: "group",
}
"""Kafka's numbers of what a value comes from."""

DEFAULT_SOURCE: Final = 5
FILE_SOURCE: Final = 4
_UNKNOWN: Final = "unknown"


class Layer(NamedTuple):
    """One place where a key has a value."""

    source: str
    name: str
    value: str


class ConfigRow(NamedTuple):
    """One key: the value in force, where it comes from, and what it overrides."""

    name: str
    value: str
    source: str
    is_set: bool
    """True if it is set for this entity, so that it can be taken away again."""
    is_default: bool
    read_only: bool
    overrides: Sequence[Layer]
    doc: str


def config_rows(configs: Sequence[Message], own_source: int) -> list[ConfigRow]:
    """Return the keys: those that are not at their defaults first, then by name.

    ``own_source`` is the number of the source that this entity's own values have.
    """
    rows = [_row(one, own_source) for one in configs]
    return sorted(rows, key=lambda one: (one.is_default, one.name))


def _row(config: Message, own_source: int) -> ConfigRow:
    layers = [
        Layer(SOURCES.get(one["source"], _UNKNOWN), one["name"], _shown(one["value"], config))
        for one in config.get("synonyms", ())
    ]
    return ConfigRow(
        config["name"],
        _shown(config["value"], config),
        SOURCES.get(config["config_source"], _UNKNOWN),
        config["config_source"] == own_source,
        config["config_source"] == DEFAULT_SOURCE,
        config["read_only"],
        layers[1:],
        config.get("documentation") or "",
    )


def _shown(value: str | None, config: Message) -> str:
    if config["is_sensitive"]:
        return "(hidden)"
    return "" if value is None else value
