"""``quorate client-metrics``: subscriptions to the metrics that Kafka clients push (KIP-714)."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.client.results import ConfigDescription

_TYPE: Final = "client-metrics"
_TIMEOUT_MS: Final = 30_000


@click.group("client-metrics")
def client_metrics() -> None:
    """Subscribe to metrics that Kafka clients push, such as those of producers and consumers.

    A subscription says which metrics clients push, how often, and which clients. Brokers show what
    they receive at their metrics.listener, as quorate_client_telemetry_value and
    quorate_client_telemetry_total.

    \b
    Example:
      quorate client-metrics alter --name latency \\
          --metrics org.apache.kafka.producer.request.latency --interval-ms 60000
      quorate client-metrics describe
      quorate client-metrics delete --name latency
    """


@client_metrics.command("list")
@admin_options
@timeout_option(_TIMEOUT_MS)
@json_option
def list_subscriptions(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool
) -> None:
    """List the names of the subscriptions.

    \b
    Example:
      quorate client-metrics list --json
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        names = admin.list_config_entities(_TYPE)
    if as_json:
        print_json(names)
        return
    for name in names:
        echo(name)


@client_metrics.command()
@click.option("--name", help="Subscription to describe. Default: all.")
@admin_options
@timeout_option(_TIMEOUT_MS)
@json_option
def describe(
    name: str | None,
    bootstrap_server: str | None,
    data: Path | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show subscriptions, with the defaults of what is not set.

    \b
    Example:
      quorate client-metrics describe --name latency
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        known = admin.list_config_entities(_TYPE)
        if name is not None and name not in known:
            raise click.ClickException(f"there is no subscription {name!r}: {_known(known)}")
        described = _described(admin, known if name is None else [name])
    if as_json:
        print_json([{"name": one.entity_name, **_values(one)} for one in described])
        return
    for one in described:
        echo(f"Client metrics configs for {one.entity_name} are:")
        for key, value in _values(one).items():
            echo(f"  {key}={value}")


@client_metrics.command()
@click.option("--name", help="Subscription to create or change.")
@click.option("--generate-name", is_flag=True, help="Create a subscription with a random name.")
@click.option(
    "--metrics",
    metavar="PREFIX,…",
    help="Prefixes of the names of metrics; * is all metrics.",
)
@click.option("--interval-ms", type=int, help="How often clients push. Default: 300000.")
@click.option(
    "--match",
    metavar="ATTRIBUTE=REGEX,…",
    help="Only clients whose attributes match: client_id, client_instance_id, "
    "client_software_name, client_software_version, client_source_address, client_source_port.",
)
@admin_options
@timeout_option(_TIMEOUT_MS)
@json_option
def alter(
    name: str | None,
    generate_name: bool,
    metrics: str | None,
    interval_ms: int | None,
    match: str | None,
    bootstrap_server: str | None,
    data: Path | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Create a subscription, or change one. An empty value removes what was set.

    \b
    Example:
      quorate client-metrics alter --name all --metrics '*' --interval-ms 60000
      quorate client-metrics alter --name python --metrics org.apache.kafka.consumer. \\
          --match client_software_name=confluent-kafka-python
    """
    from quorate.client.results import ConfigChange

    if (name is None) != generate_name:
        raise click.UsageError("give either --name or --generate-name")
    given = {
        "metrics": metrics,
        "interval.ms": None if interval_ms is None else str(interval_ms),
        "match": match,
    }
    values = {key: value or None for key, value in given.items() if value is not None}
    if not values:
        raise click.UsageError("what to change? Give --metrics, --interval-ms or --match")
    named = name or str(uuid.uuid4())
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        (result,) = admin.incremental_alter_configs([ConfigChange(_TYPE, named, values)])
        result.raise_for_error()
    if as_json:
        print_json({"name": named, "changed": values})
    else:
        echo(f"Altered client metrics config for {named}.")


@client_metrics.command()
@click.option("--name", required=True, help="Subscription to delete.")
@admin_options
@timeout_option(_TIMEOUT_MS)
@json_option
def delete(
    name: str, bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool
) -> None:
    """Delete a subscription.

    \b
    Example:
      quorate client-metrics delete --name latency
    """
    from quorate.client.results import ConfigReplacement

    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        known = admin.list_config_entities(_TYPE)
        if name not in known:
            raise click.ClickException(f"there is no subscription {name!r}: {_known(known)}")
        (result,) = admin.alter_configs([ConfigReplacement(_TYPE, name, {})])
        result.raise_for_error()
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        echo(f"Deleted client metrics config for {name}.")


def _described(admin: "AdminClient", names: Sequence[str]) -> "list[ConfigDescription]":
    from quorate.client.results import ConfigEntity

    described = admin.describe_configs([ConfigEntity(_TYPE, name) for name in names])
    for one in described:
        one.raise_for_error()
    return described


def _values(description: "ConfigDescription") -> dict[str, str]:
    return {entry.name: entry.value or "" for entry in description.entries}


def _known(names: Sequence[str]) -> str:
    return f"there are {', '.join(names)}" if names else "there are none"
