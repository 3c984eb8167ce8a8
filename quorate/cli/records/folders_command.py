"""``quorate log folders``: which log folders a stopped broker has, and giving one up."""

from pathlib import Path

import click

from quorate.cli.output import echo
from quorate.cli.records.log_folder import held_folder, log_dir_option
from quorate.cli.shared_options import json_option, print_json


@click.group()
def folders() -> None:
    """List the log folders of a broker, and give up one whose disk is gone for good.

    A broker with several folders (log.dirs) keeps a record of them in each. One that is not there
    when the broker starts is offline, with its replicas, and nothing takes its place.

    \b
    Example:
      quorate log folders list --log-dir /disk-1/quorate
      quorate log folders forget 1f0c6b1e9f7b4c0d8a6c2b5d7e9f0a13 --log-dir /disk-1/quorate
    """


@folders.command(name="list")
@log_dir_option
@json_option
def list_folders(directory: Path, as_json: bool) -> None:
    """Show the log folders of the broker, as this one of them knows them.

    \b
    Example:
      quorate log folders list --log-dir /disk-1/quorate --json
    """
    from quorate.broker.log.directories.known_folders import read_known_folders

    with held_folder(directory):
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
