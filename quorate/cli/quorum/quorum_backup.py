"""``quorate quorum backup|verify-backup|restore``: saves the metadata in a file, and restores
it."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorate.cli.output import echo
from quorate.cli.quorum.quorum_address import QuorumAddress, quorum_address_options
from quorate.cli.shared_options import json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.quorum.operations.backup_file import Backup

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@quorum_address_options
@click.option(
    "--output",
    required=True,
    type=_FILE,
    metavar="FILE",
    help="File to write; an existing file is replaced.",
)
@click.option(
    "--from-data-dir",
    type=_FOLDER,
    metavar="DIR",
    help="Data folder of a stopped voter, for when no majority is left to ask.",
)
@timeout_option(60_000)
@json_option
def backup(
    where: QuorumAddress,
    output: Path,
    from_data_dir: Path | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Back up all metadata that has been acknowledged so far, while the quorum runs.

    Any voter that is connected to a majority can provide the backup. It does not contain records of
    topics.

    \b
    Example:
      quorate quorum backup --bootstrap-controller host1:7101,host2:7101 --output quorum.backup
      quorate quorum backup --from-data-dir /var/lib/quorate/quorum-1 --output quorum.backup
    """
    from quorate.quorum.operations.backup import salvage_backup
    from quorate.quorum.operations.backup_file import write_backup

    now_ms = time.time_ns() // 1_000_000
    if from_data_dir is None:
        taken = asyncio.run(_take(where, now_ms, timeout_ms))
    elif where.is_given:
        raise click.UsageError("give --from-data-dir, or where the voters are, not both")
    else:
        taken = salvage_backup(from_data_dir, now_ms=now_ms)
    size = write_backup(output, taken)
    _show(output, taken, size, as_json=as_json)


async def _take(where: QuorumAddress, now_ms: int, timeout_ms: int) -> "Backup":
    from quorate.quorum.operations.backup import take_backup

    directory = where.directory()
    try:
        await directory.find_leader()
        return await take_backup(directory, now_ms=now_ms, timeout_s=timeout_ms / 1000)
    finally:
        await directory.close()


@click.command("verify-backup")
@click.argument("file", type=_FILE)
@json_option
def verify_backup(file: Path, as_json: bool) -> None:
    """Check all checksums of a backup, and show its contents.

    \b
    Example:
      quorate quorum verify-backup quorum.backup
    """
    from quorate.quorum.operations.backup_file import read_backup

    found = read_backup(file)
    _show(file, found, file.stat().st_size, as_json=as_json)


@click.command()
@click.option(
    "--snapshot",
    required=True,
    type=_FILE,
    metavar="FILE",
    help="Backup file made by `quorate quorum backup`.",
)
@click.option(
    "--config",
    required=True,
    type=_FILE,
    metavar="FILE",
    help="Configuration file of the voter (TOML).",
)
@json_option
def restore(snapshot: Path, config: Path, as_json: bool) -> None:
    """Make the data folder of one voter from a backup, while no voter runs.

    That voter is then a quorum by itself: start it, and add the others with empty data folders. All
    changes of the metadata after the backup are lost.

    \b
    Example:
      quorate quorum restore --snapshot quorum.backup --config /etc/quorate/quorum-1.toml
      systemctl start quorate-quorum@1
    """
    from quorate.quorum.operations.restore import restore as restore_voter
    from quorate.quorum.quorum_config import load_quorum_config

    loaded = load_quorum_config(config, {})
    made = restore_voter(snapshot, loaded)
    if as_json:
        print_json(
            {
                "voter_id": loaded.voter_id,
                "data_dir": str(made.folder),
                "offset": made.position.last_index,
                "term": made.position.last_term,
            }
        )
        return
    _show(snapshot, made.backup, snapshot.stat().st_size, as_json=False)
    echo(
        f"restored    into {made.folder} for voter {loaded.voter_id}, alone in its quorum, "
        f"from offset {made.position.last_index} on"
    )


def _show(path: Path, backup: "Backup", size: int, *, as_json: bool) -> None:
    found = _contents(path, backup, size)
    if as_json:
        print_json(found)
        return
    echo(f"backup      {path} ({size} bytes), whole, every checksum right")
    echo(f"cluster     {found['cluster_id']}")
    echo(f"taken       {_utc(found['taken_at_ms'])} from {found['source']}")
    echo(f"position    metadata offset {found['offset']}, term {found['term']}")
    voters = ", ".join(map(str, found["voters"])) or "those of the configuration"
    echo(f"voters      {voters}")
    echo(f"topics      {found['topics']}, with {found['partitions']} partitions")
    brokers = ", ".join(map(str, found["brokers"])) or "none"
    echo(f"sessions    {found['sessions']}; brokers registered: {brokers}")


def _contents(path: Path, backup: "Backup", size: int) -> dict[str, Any]:
    image = backup.image
    return {
        "file": str(path),
        "bytes": size,
        "cluster_id": backup.header.cluster_id,
        "taken_at_ms": backup.header.taken_at_ms,
        "source": backup.header.source,
        "offset": image.offset,
        "term": backup.term,
        "voters": sorted(voter.voter_id for voter in image.voter_set.voters),
        "topics": len(image.topics),
        "partitions": sum(len(topic.partitions) for topic in image.topics.values()),
        "sessions": len(image.sessions),
        "brokers": sorted(image.brokers),
    }


def _utc(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))
