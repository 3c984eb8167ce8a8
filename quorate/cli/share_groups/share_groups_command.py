"""``quorate share-groups``: list, describe, reset-offsets and delete share groups (KIP-932)."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.groups.offset_resets import (
    ResetWish,
    named_partitions,
    reset_options,
    show_moves,
)
from quorate.cli.output import echo
from quorate.cli.reachable import require_reachable
from quorate.cli.share_groups.share_group_view import ShareGroupView, in_flight_of
from quorate.cli.shared_options import (
    client_options,
    cluster_options,
    json_option,
    kafka_options,
    print_json,
    resolve_bootstrap,
    timeout_option,
)
from quorate.cli.tables import print_table

if TYPE_CHECKING:
    from quorate.client.results import Metric
    from quorate.client.share_groups import Partition, ShareGroups

TIMEOUT_MS: Final = 30_000


@click.group("share-groups")
def share_groups() -> None:
    """List, describe, reset and delete share groups.

    \b
    Example:
      quorate share-groups describe --group workers
      quorate share-groups reset-offsets --group workers --topic jobs --to-earliest --dry-run
    """


def open_share_groups(bootstrap: str, timeout_ms: int) -> "ShareGroups":
    """Return the share groups of a cluster that can be reached."""
    from quorate.client.admin_options import read_admin_options
    from quorate.client.security import read_options
    from quorate.client.share_groups import ShareGroups

    require_reachable(bootstrap)
    security = read_options(read_admin_options(client_options()).others).kafka
    return ShareGroups(bootstrap, security, timeout_ms)


@share_groups.command("list")
@cluster_options
@click.option("--state", help="Only list groups in this state: stable or empty.")
@timeout_option(TIMEOUT_MS)
@json_option
def list_(
    bootstrap_server: str | None,
    data: Path | None,
    state: str | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """List share groups and their states.

    \b
    Example:
      quorate share-groups list --state stable
    """
    found = open_share_groups(resolve_bootstrap(bootstrap_server, data), timeout_ms).all()
    shown = [(name, is_) for name, is_ in found if state is None or is_ == state.lower()]
    if as_json:
        print_json([{"group": name, "state": is_} for name, is_ in shown])
    else:
        print_table(("group", "state"), shown, none="no share groups")


@share_groups.command()
@cluster_options
@click.option(
    "--group",
    "names",
    required=True,
    multiple=True,
    help="Name of the group; may be given repeatedly.",
)
@timeout_option(TIMEOUT_MS)
@json_option
def describe(
    bootstrap_server: str | None,
    data: Path | None,
    names: tuple[str, ...],
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show the state of groups, their records in flight, and for each partition where it begins and
    its lag.

    Records in flight are a figure of the brokers, which they tell to those with the right to
    describe the cluster.

    \b
    Example:
      quorate share-groups describe --group workers --json
    """
    bootstrap = resolve_bootstrap(bootstrap_server, data)
    admin = open_share_groups(bootstrap, timeout_ms)
    metrics = _metrics(bootstrap, timeout_ms)
    views = [
        ShareGroupView(admin.describe(name), admin.offsets(name), in_flight_of(metrics, name))
        for name in names
    ]
    if as_json:
        documents = [view.as_document() for view in views]
        print_json(documents if len(names) > 1 else documents[0])
        return
    for view in views:
        view.show()


def _metrics(bootstrap: str, timeout_ms: int) -> "list[Metric] | None":
    """Return the figures of the brokers; None if they are not told."""
    from quorate.client.admin import AdminClient
    from quorate.client.errors import QuorateError

    try:
        with AdminClient(bootstrap, timeout_ms=timeout_ms, options=client_options()) as admin:
            return admin.metrics()
    except QuorateError as error:
        echo(f"records in flight are not known: {error}", err=True)
        return None


@share_groups.command()
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
    """Delete groups that have no members, together with what is known of their records.

    \b
    Example:
      quorate share-groups delete --group workers
    """
    admin = open_share_groups(resolve_bootstrap(bootstrap_server, data), timeout_ms)
    for name in names:
        admin.delete(name)
        echo(f"deleted share group {name}")


@share_groups.command("reset-offsets")
@reset_options(TIMEOUT_MS, default_partitions="that the group has begun with")
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
    """Have a group begin at other offsets. Records from there on are delivered, also those that
    were accepted before.

    \b
    Example:
      quorate share-groups reset-offsets --group workers --topic jobs --to-earliest
      quorate share-groups reset-offsets --group workers --by-duration 1h --dry-run
    """
    from quorate.cli.groups.group_offsets import Groups

    bootstrap = resolve_bootstrap(bootstrap_server, data)
    admin = open_share_groups(bootstrap, timeout_ms)
    logs = Groups({"bootstrap.servers": bootstrap, **kafka_options()}, timeout_ms)
    begun = _starts(admin, group)
    partitions = named_partitions(logs, topics) if topics else sorted(begun)
    if not partitions:
        raise click.ClickException(
            f"share group {group!r} has begun with no partition: name topics with --topic"
        )
    planned = wish.planned(logs, begun, partitions)
    if not dry_run:
        admin.set_offsets(group, {(move.topic, move.partition): move.after for move in planned})
    show_moves(group, planned, dry_run=dry_run, as_json=as_json)


def _starts(admin: "ShareGroups", group: str) -> "dict[Partition, int]":
    """Return where a group begins now; a group that does not exist begins nowhere."""
    from quorate.client.errors import RequestFailed
    from quorate_proto.v1 import errors_pb2

    try:
        offsets = admin.offsets(group)
    except RequestFailed as error:
        if error.code != errors_pb2.GROUP_ID_NOT_FOUND:
            raise
        return {}
    return {(one.topic, one.partition): one.start for one in offsets if one.start is not None}
