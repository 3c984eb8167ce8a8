"""Configuration of topics, of brokers and of groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from quorate.cli.configs.kinds.config_kind import Entity
from quorate.cli.output import echo
from quorate.cli.shared_options import print_json

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import ConfigDescription, ConfigEntry


@dataclass(frozen=True)
class ResourceConfigs:
    """Describes and alters one type of resource; ``known`` returns the names of all resources."""

    plural: str
    singular: str
    known: "Callable[[AdminClient], Sequence[str]]"
    source: str
    """Kafka's name of the source of values that are set for one resource."""
    default_source: str = ""
    """Kafka's name of the source of values that are set for all resources; empty if none can be
    set."""

    def describe(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        *,
        everything: bool,
        as_json: bool,
    ) -> None:
        from quorate.client.results import ConfigEntity

        (entity,) = entities
        names = self.known(admin) if entity.name is None else [self._name(entity)]
        found = admin.describe_configs(
            [ConfigEntity(self.singular, name) for name in names], include_synonyms=True
        )
        for one in found:
            one.raise_for_error()
        shown = [(one, self._shown(one, everything=everything)) for one in found]
        if as_json:
            print_json([_document(one, entries) for one, entries in shown])
            return
        for one, entries in shown:
            echo(self._title(one.entity_name, everything=everything))
            for entry in entries:
                echo(f"  {_line(entry)}")

    def alter(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        added: Mapping[str, str],
        deleted: Sequence[str],
    ) -> str:
        from quorate.client.results import ConfigChange

        (entity,) = entities
        if entity.name is None:
            default = " or --entity-default" if self.default_source else ""
            raise click.UsageError(f"which one? Give --entity-name{default}")
        name = self._name(entity)
        values = {**added, **dict.fromkeys(deleted)}
        (result,) = admin.incremental_alter_configs([ConfigChange(self.singular, name, values)])
        result.raise_for_error()
        if entity.is_default:
            return f"Completed updating default config for {self.plural} in the cluster."
        return f"Completed updating config for {self.singular} {name}."

    def _name(self, entity: Entity) -> str:
        if entity.is_default:
            if not self.default_source:
                raise click.UsageError(f"--entity-default: {self.plural} have none")
            return ""
        return entity.name or ""

    def _shown(self, description: "ConfigDescription", *, everything: bool) -> "list[ConfigEntry]":
        """Return the entries that are set for this resource itself, or all entries in force."""
        if everything:
            return list(description.entries)
        own = self.source if description.entity_name else self.default_source
        return [entry for entry in description.entries if entry.source.name == own]

    def _title(self, name: str, *, everything: bool) -> str:
        if not name:
            return f"Default configs for {self.plural} in the cluster are:"
        which = "All" if everything else "Dynamic"
        return f"{which} configs for {self.singular} {name} are:"


def _line(entry: "ConfigEntry") -> str:
    places = ", ".join(f"{one.source.name}:{one.name}={_text(one.value)}" for one in entry.synonyms)
    sensitive = "true" if entry.sensitive else "false"
    return f"{entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{places}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _document(description: "ConfigDescription", entries: "list[ConfigEntry]") -> dict[str, Any]:
    return {
        "entity_type": description.entity_type,
        "entity_name": description.entity_name,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source.name,
                "read_only": entry.read_only,
                "sensitive": entry.sensitive,
                "synonyms": [
                    {"name": one.name, "value": one.value, "source": one.source.name}
                    for one in entry.synonyms
                ],
            }
            for entry in entries
        ],
    }


def _brokers(admin: "AdminClient") -> list[str]:
    return [str(broker.id) for broker in admin.cluster_status().brokers] + [""]


TOPICS: Final = ResourceConfigs(
    "topics", "topic", known=lambda admin: admin.list_topics(), source="DYNAMIC_TOPIC_CONFIG"
)
BROKERS: Final = ResourceConfigs(
    "brokers",
    "broker",
    known=_brokers,
    source="DYNAMIC_BROKER_CONFIG",
    default_source="DYNAMIC_DEFAULT_BROKER_CONFIG",
)
BROKER_LOGGERS: Final = ResourceConfigs(
    "broker-loggers",
    "broker-logger",
    known=lambda admin: [str(broker.id) for broker in admin.cluster_status().brokers],
    source="DYNAMIC_BROKER_LOGGER_CONFIG",
)
"""The levels of the loggers of a broker, which last until it is restarted."""


def _no_list(_admin: "AdminClient") -> list[str]:
    raise click.UsageError(
        "which one? Give --entity-name: a group need not exist to be configured, so there is no "
        "list of them"
    )


GROUPS: Final = ResourceConfigs("groups", "group", known=_no_list, source="GROUP_CONFIG")
