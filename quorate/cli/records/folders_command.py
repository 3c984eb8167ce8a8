"""``quorate log folders``: which log folders brokers have, and giving one up."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from quorate.cli.output import echo
from quorate.cli.reachable import require_reachable
from quorate.cli.records.log_folder import (
    held_folder,
    is_log_folder,
    log_dir_option,
    refuse_parent,
)
from quorate.cli.shared_options import (
    client_options,
    cluster_options,
    json_option,
    print_json,
    resolve_bootstrap,
    timeout_option,
)
from quorate.cli.sizes import size
from quorate.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate.client.log_directories import LogDirectory

_IF_RUNNING: Final = (
    "; a running broker is asked with `quorate log folders list --bootstrap-server HOST:PORT`"
)


@click.group()
def folders() -> None:
    """List the log folders of brokers, and give up one whose disk is gone for good.

    A broker with several folders (log.dirs) keeps a record of them in each. One that is not there
    when the broker starts is offline, with its replicas, and nothing takes its place.

    \b
    Example:
      quorate log folders list --bootstrap-server 10.20.0.1:9092
      quorate log folders list --log-dir /disk-1/quorate
      quorate log folders forget 1f0c6b1e9f7b4c0d8a6c2b5d7e9f0a13 --log-dir /disk-1/quorate
    """


@folders.command(name="list")
@cluster_options
@click.option(
    "--log-dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="A log folder of a broker that does not run. Its record of all folders of that broker is "
    "shown, with the ids that `forget` takes.",
)
@timeout_option(10_000)
@json_option
def list_folders(
    bootstrap_server: str | None,
    data: Path | None,
    directory: Path | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Show the log folders of all running brokers, or those of a stopped one.

    Running brokers tell what is in each folder, and which are in trouble: offline, full, or with a
    damaged log. `quorate status` says which of these it is.

    \b
    Example:
      quorate log folders list --bootstrap-server 10.20.0.1:9092
      quorate log folders list --log-dir /disk-1/quorate --json
    """
    if directory is None:
        _show_running(resolve_bootstrap(bootstrap_server, data), timeout_ms, as_json=as_json)
    elif bootstrap_server or data:
        raise click.UsageError(
            "give --log-dir for a stopped broker, or --bootstrap-server or --data for running "
            "brokers, not both"
        )
    else:
        _show_stopped(directory, as_json=as_json)


def _show_running(bootstrap: str, timeout_ms: int, *, as_json: bool) -> None:
    from quorate.client.admin_options import read_admin_options
    from quorate.client.log_directories import describe_log_directories
    from quorate.client.security import read_options

    require_reachable(bootstrap)
    security = read_options(read_admin_options(client_options()).others).kafka
    found = describe_log_directories(bootstrap, security, timeout_ms)
    if as_json:
        print_json([_document(one) for one in found])
        return
    heads = ("broker", "folder", "replicas", "stored", "free", "state")
    print_table(heads, _rows(found), none="no broker is live")


def _document(one: "LogDirectory") -> dict[str, object]:
    return {
        "broker": one.broker_id,
        "path": one.path,
        "in_trouble": bool(one.error_code),
        "replicas": one.replicas,
        "moving_here": one.moving_here,
        "size_bytes": one.size_bytes,
        "total_bytes": one.total_bytes,
        "usable_bytes": one.usable_bytes,
    }


def _rows(found: "Sequence[LogDirectory]") -> list[tuple[str, ...]]:
    return [
        (
            str(one.broker_id),
            one.path,
            str(one.replicas),
            size(one.size_bytes),
            "unknown" if one.total_bytes < 0 else size(one.usable_bytes),
            ("in trouble" if one.error_code else "works")
            + (f", {one.moving_here} replicas move here" if one.moving_here else ""),
        )
        for one in found
    ]


def _show_stopped(directory: Path, *, as_json: bool) -> None:
    from quorate.broker.log.directories.known_folders import read_known_folders

    refuse_parent(directory)
    if not is_log_folder(directory):
        raise click.ClickException(f"{directory} is no log folder: no broker has used it")
    with held_folder(directory, if_running=_IF_RUNNING):
        known = read_known_folders(directory)
    found = {} if known is None else known.folders
    shown = [
        {"id": key.hex(), "path": one.path, "absent": one.absence is not None}
        for key, one in found.items()
    ]
    if as_json:
        print_json(shown)
        return
    for each in shown:
        echo(f"{each['id']}  {each['path']}{'  absent' if each['absent'] else ''}")
    if not shown:
        echo("no record: the broker has one log folder")


@folders.command()
@click.argument("directory_id", metavar="ID")
@log_dir_option
def forget(directory_id: str, directory: Path) -> None:
    """Give up a folder whose disk is gone for good, and the replicas in it.

    At its next start the broker declares these replicas lost: they leave the ISRs, and are fetched
    from their leaders into the folders that it has. Where no other replica is left, `quorate
    elect-leaders --election-type unclean` accepts the loss. An empty folder at the same path counts
    as a new one. --log-dir is another folder of the broker, which must not run.

    \b
    Example:
      quorate log folders forget 1f0c6b1e9f7b4c0d8a6c2b5d7e9f0a13 --log-dir /disk-1/quorate
    """
    from quorate.broker.log.directories.known_folders import read_known_folders, write_known_folders
    from quorate.common.files.data_folder import read_identity

    with held_folder(directory):
        known, own = read_known_folders(directory), read_identity(directory)
        folders = {} if known is None else dict(known.folders)
        gone = next((key for key in folders if key.hex() == directory_id), None)
        if known is None or gone is None:
            listed = ", ".join(key.hex() for key in folders) or "none"
            raise click.ClickException(f"{directory} knows no folder {directory_id}: {listed}")
        if own is not None and gone == own.directory_id:
            raise click.ClickException(
                f"{directory} is this folder itself: name another one of the broker by --log-dir"
            )
        path = folders.pop(gone).path
        write_known_folders(directory, known.with_folders(folders))
    echo(f"forgot {directory_id}, which was at {path}")
