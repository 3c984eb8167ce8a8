"""``quorate features``: the feature levels that gate an upgrade (B4)."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.client.results import FeatureResult


@click.group()
def features() -> None:
    """Show feature levels, raise or lower them.

    To make a rolling upgrade, install the new version on one process after the other, then raise
    the levels. Until the levels are raised, the new version behaves as the old one.

    \b
    Example:
      quorate features describe --bootstrap-server 127.0.0.1:9092
      quorate features upgrade --bootstrap-server 127.0.0.1:9092
      quorate features upgrade --feature inter_broker_protocol --level 2 --data ./quorate-data
    """


@features.command()
@admin_options
@timeout_option(10_000)
@json_option
def describe(
    bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool
) -> None:
    """Show the level of every feature, and the highest level that all live brokers support.

    \b
    Example:
      quorate features describe --data ./quorate-data --json
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        found = admin.cluster_status().features
    if as_json:
        print_json([asdict(feature) for feature in found])
        return
    for feature in found:
        echo(
            f"{feature.name}  level {feature.level}, brokers understand up to {feature.newest}: "
            f"{feature.meaning}"
        )


@features.command()
@admin_options
@click.option(
    "--feature", "name", metavar="NAME", help="Name of the feature. Default: all features."
)
@click.option(
    "--level",
    type=click.IntRange(min=1),
    help="The new level. Default: the highest level that all processes support.",
)
@click.option(
    "--dry-run", is_flag=True, help="Only check whether it is possible, and change nothing."
)
@timeout_option(30_000)
@json_option
def upgrade(
    bootstrap_server: str | None,
    data: Path | None,
    name: str | None,
    level: int | None,
    dry_run: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Raise one feature or all features. Every process must support the new level.

    \b
    Example:
      quorate features upgrade --feature inter_broker_protocol --level 2 --data ./quorate-data
    """
    if level is not None and name is None:
        raise click.UsageError("--level is of one feature: give --feature NAME with it")

    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        names = [name] if name else [one.name for one in admin.cluster_status().features]
        results = admin.update_features(dict.fromkeys(names, level or 0), validate_only=dry_run)
    _show(results, as_json=as_json, dry_run=dry_run)


@features.command()
@admin_options
@click.option("--feature", "name", metavar="NAME", required=True, help="Name of the feature.")
@click.option("--level", type=click.IntRange(min=1), required=True, help="The new level.")
@click.option(
    "--dry-run", is_flag=True, help="Only check whether it is possible, and change nothing."
)
@timeout_option(30_000)
@json_option
def downgrade(
    bootstrap_server: str | None,
    data: Path | None,
    name: str,
    level: int,
    dry_run: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Lower the level of a feature. It is refused where the cluster would lose data or state.

    \b
    Example:
      quorate features downgrade --feature inter_broker_protocol --level 1 --data ./quorate-data
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        results = admin.update_features({name: level}, allow_downgrade=True, validate_only=dry_run)
    _show(results, as_json=as_json, dry_run=dry_run)


def _show(results: "list[FeatureResult]", *, as_json: bool, dry_run: bool) -> None:
    """Print the result for each feature; raise the first refusal, if there is one."""
    if as_json:
        print_json([asdict(result) for result in results])
    else:
        would = "could be at" if dry_run else "is at"
        for result in results:
            if result.ok:
                echo(f"{result.name} {would} level {result.level}")
    for result in results:
        result.raise_for_error()
