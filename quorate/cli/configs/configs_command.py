"""``quorate configs``: configuration that changes while brokers run, with Kafka's flags and words.

Each kind of entity has a module in ``quorate.cli.configs.kinds``. ``KINDS`` finds it by the entity
types.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.configs.kinds.config_kind import DEFAULT, ConfigKind, Entity
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option

TIMEOUT_MS: Final = 30_000

KINDS: Final[Mapping[frozenset[str], str]] = {
    frozenset({"topics"}): "quorate.cli.configs.kinds.resource_configs:TOPICS",
    frozenset({"brokers"}): "quorate.cli.configs.kinds.resource_configs:BROKERS",
    frozenset({"broker-loggers"}): "quorate.cli.configs.kinds.resource_configs:BROKER_LOGGERS",
    frozenset({"groups"}): "quorate.cli.configs.kinds.resource_configs:GROUPS",
    frozenset({"users"}): "quorate.cli.configs.kinds.user_configs:USERS",
    frozenset({"clients"}): "quorate.cli.configs.kinds.quota_configs:QUOTAS",
    frozenset({"ips"}): "quorate.cli.configs.kinds.quota_configs:QUOTAS",
    frozenset({"users", "clients"}): "quorate.cli.configs.kinds.quota_configs:QUOTAS",
}
"""The ``ConfigKind`` for each combination of entity types that may be named together."""

_COMMA: Final = re.compile(r",(?![^\[]*\])")
"""Matches a comma that is not within brackets."""


class OrderedNames(click.Command):
    """A command that keeps the order of ``--entity-name`` and ``--entity-default``.

    Each of them names the entity of one ``--entity-type``.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        plain: list[str] = []
        for position, argument in enumerate(args):
            is_value = position > 0 and args[position - 1] in _TAKES_VALUE
            if argument == "--entity-default" and not is_value:
                plain += ["--entity-name", DEFAULT]
            else:
                plain.append(argument)
        return super().parse_args(ctx, plain)


_TAKES_VALUE: Final = ("--entity-name", "--entity-type", "--add-config", "--delete-config")


@click.command(cls=OrderedNames)
@admin_options
@click.option("--describe", is_flag=True, help="Show the configuration of entities.")
@click.option("--alter", is_flag=True, help="Change the configuration of an entity.")
@click.option(
    "--entity-type",
    "types",
    multiple=True,
    metavar="TYPE",
    help=f"{', '.join(sorted({one for kind in KINDS for one in kind}))}.",
)
@click.option(
    "--entity-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name of the entity: a topic, a broker id, a user, and so on. Without a name, "
    "--describe shows all entities.",
)
@click.option(
    "--entity-default",
    "_default",
    is_flag=True,
    help="Use the default for all entities that have no value of their own, instead of one entity.",
)
@click.option(
    "--add-config",
    metavar="K=V,K=[V,V],…",
    help="Keys to set, as key=value,... A value that contains commas is put in square brackets.",
)
@click.option(
    "--add-config-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the keys to set, one key=value per line.",
)
@click.option(
    "--delete-config", metavar="K,K,…", help="Keys to remove, so that their defaults apply again."
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also show values that come from defaults and from configuration files.",
)
@timeout_option(TIMEOUT_MS)
@json_option
def configs(
    bootstrap_server: str | None,
    data: Path | None,
    describe: bool,
    alter: bool,
    types: tuple[str, ...],
    names: tuple[str, ...],
    _default: bool,
    add_config: str | None,
    add_config_file: Path | None,
    delete_config: str | None,
    everything: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show and change configuration without a restart.

    \b
    Example:
      quorate configs --describe --entity-type topics --entity-name events --all
      quorate configs --alter --entity-type topics --entity-name events \\
          --add-config min.insync.replicas=2
      quorate configs --alter --entity-type brokers --entity-default \\
          --add-config message.max.bytes=1048576 --delete-config num.partitions
      quorate configs --alter --add-config controller_mutation_rate=10 \\
          --entity-type users --entity-name anna --entity-type clients --entity-default
      quorate configs --alter --add-config connection_creation_rate=20 \\
          --entity-type ips --entity-default
      quorate configs --alter --add-config share.auto.offset.reset=earliest \\
          --entity-type groups --entity-name workers
      quorate configs --alter --entity-type broker-loggers --entity-name 1 \\
          --add-config quorate.broker.replication=DEBUG
    """
    if describe == alter:
        raise click.UsageError("give either --describe or --alter")
    if describe and (add_config or add_config_file or delete_config):
        raise click.UsageError("--add-config and --delete-config go with --alter")
    if alter and everything:
        raise click.UsageError("--all goes with --describe")
    kind, entities = _named(types, names)
    added, deleted = _changes(add_config, add_config_file, delete_config)
    if alter and not added and not deleted:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        if describe:
            kind.describe(admin, entities, everything=everything, as_json=as_json)
            return
        done = kind.alter(admin, entities, added, deleted)
    if as_json:
        print_json(
            {
                "entity": {entity.type: entity.name for entity in entities},
                "added": _without_passwords(added),
                "deleted": deleted,
            }
        )
    else:
        echo(done)


def _without_passwords(added: Mapping[str, str]) -> dict[str, str]:
    """Return the added values in a form that may be shown: the value of a credential holds a
    password."""
    return {key: "hidden" if key.startswith("SCRAM-") else value for key, value in added.items()}


def _named(types: Sequence[str], names: Sequence[str]) -> tuple[ConfigKind, list[Entity]]:
    """Return the kind and the entities that the options name; the n-th name belongs to the n-th
    type.

    Raises:
        click.UsageError: a type has no configuration, or the types do not go together.
    """
    known = sorted({one for kind in KINDS for one in kind})
    if not types:
        raise click.UsageError(f"which --entity-type? There are {', '.join(known)}")
    where = KINDS.get(frozenset(types))
    if where is None or len(set(types)) != len(types):
        raise click.UsageError(
            f"--entity-type {' '.join(types)}: there are {', '.join(known)}, and only users and "
            "clients go together"
        )
    if len(names) > len(types):
        raise click.UsageError(
            f"{len(names)} names for {len(types)} entity types: give one --entity-name or "
            "--entity-default for each"
        )
    module, _, name = where.partition(":")
    kind: ConfigKind = getattr(importlib.import_module(module), name)
    padded: list[str | None] = [*names, *[None] * (len(types) - len(names))]
    return kind, [Entity(one, named) for one, named in zip(types, padded, strict=True)]


def _changes(
    add_config: str | None, add_config_file: Path | None, delete_config: str | None
) -> tuple[dict[str, str], list[str]]:
    """Return the values to set, by key, and the keys to delete."""
    added: dict[str, str] = {}
    if add_config_file is not None:
        added |= _file_values(add_config_file)
    for pair in _COMMA.split(add_config or ""):
        if pair.strip():
            key, value = _pair(pair, "--add-config")
            added[key] = value
    deleted = [key.strip() for key in (delete_config or "").split(",") if key.strip()]
    both = sorted(set(added).intersection(deleted))
    if both:
        raise click.UsageError(f"both added and deleted: {', '.join(both)}")
    return added, deleted


def _file_values(path: Path) -> dict[str, str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return dict(_pair(line, str(path)) for line in lines if line and not line.startswith("#"))


def _pair(pair: str, where: str) -> tuple[str, str]:
    """Parse ``key=value``, and remove the brackets around the value."""
    key, equals, value = pair.partition("=")
    value = value.strip()
    if not equals or not key.strip():
        raise click.UsageError(f"{where} {pair}: must be key=value")
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
    return key.strip(), value
