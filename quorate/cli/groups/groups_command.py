"""``quorate groups``: list, describe, reset-offsets and delete consumer groups."""

import datetime
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.groups.group_view import GroupView, number_text
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
    from quorate.cli.groups.group_offsets import Groups, Move, Partition

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
@cluster_options
@click.option("--group", required=True, help="Name of the group; it must have no members.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P…]",
    help="Topics, or some of their partitions. Default: all partitions for which the group has "
    "committed offsets.",
)
@click.option("--to-earliest", is_flag=True, help="Reset to the first available record.")
@click.option(
    "--to-latest", is_flag=True, help="Reset to the end of the log, after the last record."
)
@click.option(
    "--to-offset", type=click.IntRange(min=0), help="Reset each partition to this offset."
)
@click.option(
    "--to-datetime", metavar="ISO-8601", help="Reset to the first record at or after this time."
)
@click.option(
    "--by-duration",
    metavar="1d|2h|30m",
    help="Reset to the first record that is not older than this duration.",
)
@click.option(
    "--shift-by",
    type=int,
    help="Move forward by this number of records, or backward if it is negative.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@timeout_option(TIMEOUT_MS)
@json_option
def reset_offsets(
    bootstrap_server: str | None,
    data: Path | None,
    group: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
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
    wishes = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--shift-by": shift_by,
    }
    given = {name: wish for name, wish in wishes.items() if wish is not None}
    if len(given) != 1:
        raise click.UsageError(f"give exactly one of {', '.join(wishes)}")
    ((name, wish),) = given.items()
    since_ms = _since_ms(name, str(wish)) if name in ("--to-datetime", "--by-duration") else None
    admin = _open(bootstrap_server, data, timeout_ms)
    planned = _planned(
        admin,
        group,
        topics,
        since_ms=since_ms,
        to_offset=to_offset,
        shift_by=shift_by,
        to_earliest=to_earliest,
    )
    if not planned:
        raise click.ClickException(
            f"group {group!r} has committed nothing: name topics with --topic"
        )
    if not dry_run:
        admin.commit(group, {(move.topic, move.partition): move.after for move in planned})
    if as_json:
        print_json({"group": group, "dry_run": dry_run, "moves": [asdict(m) for m in planned]})
        return
    rows = [
        (move.topic, str(move.partition), number_text(move.before), str(move.after))
        for move in planned
    ]
    print_table(("topic", "partition", "before", "after"), rows)
    echo("nothing was changed (--dry-run)" if dry_run else f"group {group} was reset")


def _planned(
    admin: "Groups",
    group: str,
    topics: tuple[str, ...],
    *,
    since_ms: int | None,
    to_offset: int | None,
    shift_by: int | None,
    to_earliest: bool,
) -> "list[Move]":
    """Compute the moves that the given option asks for; without any of them, to the latest
    offsets."""
    from quorate.cli.groups.group_offsets import moves

    committed = admin.committed(group)
    partitions = _partitions(admin, topics) if topics else sorted(committed)
    earliest = admin.earliest(partitions)
    latest = admin.latest(partitions)
    if since_ms is not None:
        found = admin.since(partitions, since_ms)
        wanted = {tp: offset if offset >= 0 else latest[tp] for tp, offset in found.items()}
    elif to_offset is not None:
        wanted = dict.fromkeys(partitions, to_offset)
    elif shift_by is not None:
        wanted = {tp: committed.get(tp, latest[tp]) + shift_by for tp in partitions}
    else:
        wanted = earliest if to_earliest else latest
    return moves(wanted, committed, earliest, latest)


def _partitions(admin: "Groups", topics: tuple[str, ...]) -> "list[Partition]":
    found: list[Partition] = []
    for named in topics:
        topic, colon, numbers = named.partition(":")
        there = admin.partitions_of(topic)
        if not colon:
            found += there
            continue
        for number in numbers.split(","):
            if not number.isdecimal() or (topic, int(number)) not in there:
                raise click.ClickException(
                    f"--topic {named}: {number!r} is no partition of {topic}, "
                    f"which has 0 to {len(there) - 1}"
                )
            found.append((topic, int(number)))
    return found


def _since_ms(name: str, text: str) -> int:
    """Parse a time into ms since the epoch; a time without a zone is in the local zone."""
    from quorate.common.durations import parse_duration_ms

    try:
        if name == "--by-duration":
            return int(time.time() * 1000) - parse_duration_ms(text)
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise click.UsageError(f"{name} {text}: {error}") from error
