"""``quorate groups``: list, describe, reset-offsets and delete consumer groups."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.groups.group_view import GroupView
from quorate.cli.groups.offset_resets import (
    ResetWish,
    named_partitions,
    reset_options,
    show_moves,
)
from quorate.cli.output import echo
from quorate.cli.reachable import require_reachable
from quorate.cli.shared_options import (
    cluster_options,
    json_option,
    kafka_options,
    print_json,
    resolve_bootstrap,
    timeout_option,
)
from quorate.cli.tables import print_table

if TYPE_CHECKING:
    from quorate.cli.groups.group_offsets import Groups

TIMEOUT_MS: Final = 30_000


@click.group()
def groups() -> None:
    """List, describe, reset and delete consumer groups.

    \b
    Example:
      quorate groups describe --group billing
      quorate groups reset-offsets --group billing --topic orders --to-earliest --dry-run
    """


def _open(bootstrap_server: str | None, data: Path | None, timeout_ms: int) -> "Groups":
    from quorate.cli.groups.group_offsets import Groups

    bootstrap = resolve_bootstrap(bootstrap_server, data)
    require_reachable(bootstrap)
    return Groups({"bootstrap.servers": bootstrap, **kafka_options()}, timeout_ms)


@groups.command("list")
@cluster_options
@click.option("--state", help="Only list groups in this state: stable, empty and so on.")
@timeout_option(TIMEOUT_MS)
@json_option
def list_(
    bootstrap_server: str | None,
    data: Path | None,
    state: str | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """List consumer groups and their states.

    \b
    Example:
      quorate groups list --state stable
    """
    found = _open(bootstrap_server, data, timeout_ms).all()
    shown = [(name, is_) for name, is_ in found if state is None or is_ == state.lower()]
    if as_json:
        print_json([{"group": name, "state": is_} for name, is_ in shown])
    else:
        print_table(("group", "state"), shown, none="no groups")


@groups.command()
@cluster_options
@click.option("--group", "names", multiple=True, help="Name of the group; may be given repeatedly.")
@click.option("--all-groups", is_flag=True, help="Describe all groups.")
@timeout_option(TIMEOUT_MS)
@json_option
def describe(
    bootstrap_server: str | None,
    data: Path | None,
    names: tuple[str, ...],
    all_groups: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show the members of groups, their committed offsets and their lag.

    \b
    Example:
      quorate groups describe --group billing --json
      quorate groups describe --all-groups
    """
    if bool(names) == all_groups:
        raise click.UsageError("give --group or --all-groups")
    admin = _open(bootstrap_server, data, timeout_ms)
    wanted = [name for name, _ in admin.all()] if all_groups else names
    views = [GroupView.of(admin, name) for name in wanted]
    if as_json:
        documents = [view.as_document() for view in views]
        # One group by its name is an object, as it always was; more are a list.
        print_json(documents if all_groups or len(names) > 1 else documents[0])
        return
    for view in views:
        view.show()
    if not views:
        echo("no groups")


@groups.command()
@cluster_options
@click.option(
    "--group",
    "names",
    required=True,
    multiple=True,
    help="Name of the group; may be given repeatedly.",
)
@timeout_option(TIMEOUT_MS)
def delete(
    bootstrap_server: str | None, data: Path | None, names: tuple[str, ...], timeout_ms: int
) -> None:
    """Delete groups that have no members, together with their offsets.

    \b
    Example:
      quorate groups delete --group billing
    """
    admin = _open(bootstrap_server, data, timeout_ms)
    for name in names:
        admin.delete(name)
        echo(f"deleted group {name}")


@groups.command("reset-offsets")
@reset_options(TIMEOUT_MS, default_partitions="for which the group has committed offsets")
def reset_offsets(
    bootstrap_server: str | None,
    data: Path | None,
    group: str,
    topics: tuple[str, ...],
    wish: ResetWish,
    dry_run: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Reset the committed offsets of a group. An offset outside of a log is moved to the nearest
    end of that log.

    \b
    Example:
      quorate groups reset-offsets --group billing --topic orders --to-datetime 2026-11-22T08:00Z
      quorate groups reset-offsets --group billing --shift-by -100 --dry-run
    """
    admin = _open(bootstrap_server, data, timeout_ms)
    committed = admin.committed(group)
    partitions = named_partitions(admin, topics) if topics else sorted(committed)
    planned = wish.planned(admin, committed, partitions)
    if not planned:
        raise click.ClickException(
            f"group {group!r} has committed nothing: name topics with --topic"
        )
    if not dry_run:
        admin.commit(group, {(move.topic, move.partition): move.after for move in planned})
    show_moves(group, planned, dry_run=dry_run, as_json=as_json)
