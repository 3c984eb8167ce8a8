"""Quotas of users, clients and addresses, in the words of Kafka's command (Q12, KIP-612)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.configs.kinds.config_kind import Entity
from quorate.cli.output import echo
from quorate.cli.shared_options import print_json

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import QuotaEntity, QuotaEntry, QuotaFilter

_ALIASES: Final = {"controller_mutation_rate": "controller_mutations_rate"}
"""The cluster's name of a quota → Kafka's spelling in KIP-599. Kafka's spelling is shown, and both
spellings are accepted."""


class QuotaConfigs:
    """Describes and alters the quotas of users, of client ids, of client ids of users, and of
    addresses.
    """

    def describe(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        *,
        everything: bool,
        as_json: bool,
    ) -> None:
        entries = admin.describe_client_quotas(
            [_filter(entity) for entity in entities], strict=True
        )
        if as_json:
            print_json([_document(entry) for entry in entries])
            return
        for entry in entries:
            values = ",".join(f"{key}={value}" for key, value in _shown(entry.values))
            echo(f"Configs for {_title(entry.entity)} are {values}")

    def alter(
        self,
        admin: "AdminClient",
        entities: Sequence[Entity],
        added: Mapping[str, str],
        deleted: Sequence[str],
    ) -> str:
        from quorate.client.results import QuotaAlteration

        entity = _entity(entities)
        values = {key: _number(key, value) for key, value in added.items()}
        alteration = QuotaAlteration(entity, {**values, **dict.fromkeys(deleted)})
        (result,) = admin.alter_client_quotas([alteration])
        result.raise_for_error()
        return f"Updated config for entity: {_title(entity)}."


def _filter(entity: Entity) -> "QuotaFilter":
    from quorate.client.results import QuotaFilter

    name = "" if entity.is_default else entity.name
    return QuotaFilter({"users": "user", "clients": "client-id", "ips": "ip"}[entity.type], name)


def _entity(entities: Iterable[Entity]) -> "QuotaEntity":
    """Return the quota entity that the options name.

    Raises:
        click.UsageError: an entity type has no name.
    """
    from quorate.client.results import QuotaEntity

    names: dict[str, str] = {}
    for entity in entities:
        if entity.name is None:
            raise click.UsageError(
                f"which of the {entity.type}? Give --entity-name or --entity-default for each type"
            )
        names[entity.type] = "" if entity.is_default else entity.name
    return QuotaEntity(names.get("users"), names.get("clients"), names.get("ips"))


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise click.UsageError(f"--add-config {key}={value}: must be a number") from None


def _title(entity: "QuotaEntity") -> str:
    parts = (("user-principal", entity.user), ("client-id", entity.client_id), ("ip", entity.ip))
    return ", ".join(
        f"{kind} '{name}'" if name else f"the default {kind}"
        for kind, name in parts
        if name is not None
    )


def _shown(values: Mapping[str, float]) -> list[tuple[str, str]]:
    return sorted((_ALIASES.get(key, key), f"{value:.15g}") for key, value in values.items())


def _document(entry: "QuotaEntry") -> dict[str, object]:
    names = {"user": entry.entity.user, "client-id": entry.entity.client_id, "ip": entry.entity.ip}
    return {
        "entity": {kind: name or None for kind, name in names.items() if name is not None},
        "quotas": dict(entry.values),
    }


QUOTAS: Final = QuotaConfigs()
