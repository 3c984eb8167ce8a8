"""``quorate log strays``: logs of a stopped broker that the quorum does not know."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from quorate.cli.output import echo
from quorate.cli.records.log_folder import held_folder, log_dir_option
from quorate.cli.shared_options import json_option, print_json

ID_BYTES: Final = 16


@click.group()
def strays() -> None:
    """List, restore and delete logs that the quorum does not know.

    A broker keeps such a log and serves nobody from it. `quorate status` names the brokers that
    have one, and their logs say why. A log becomes a stray if its topic was deleted longer ago than
    the quorum remembers, if the quorum was restored from an older backup, or if its topic id was
    damaged.

    \b
    Example:
      quorate log strays list --log-dir ./quorate-data/broker-1
      quorate log strays delete --log-dir ./quorate-data/broker-1 \\
          --topic-id 1f0c6b1e9f7b4c0d8a6c2b5d7e9f0a13 --partition 0
    """


def _id_option(name: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, required=True, callback=_topic_id, metavar="ID", help=text)


def _topic_id(_context: click.Context, option: click.Parameter, given: str) -> bytes:
    """Return the id, which is given in hex digits or, as Kafka writes it, in base64."""
    for decode in (bytes.fromhex, _from_base64):
        try:
            topic_id = decode(given)
        except ValueError:
            continue
        if len(topic_id) == ID_BYTES:
            return topic_id
    raise click.BadParameter(
        f"{given!r} is no topic id: `quorate log strays list` shows those of strays, and "
        "`quorate topics describe` those of topics",
        param=option,
    )


def _from_base64(given: str) -> bytes:
    return base64.urlsafe_b64decode(given + "==")


_stray_id = _id_option("--topic-id", "The id under which the log is kept.")
_partition = click.option(
    "--partition", required=True, type=click.IntRange(min=0), help="The number of the partition."
)


@strays.command(name="list")
@log_dir_option
@json_option
def list_strays(directory: Path, as_json: bool) -> None:
    """Show the logs that the quorum did not know when the broker last asked.

    \b
    Example:
      quorate log strays list --log-dir ./quorate-data/broker-1 --json
    """
    import msgspec

    from quorate.broker.log.recovery.strays import strays as found_in

    with held_folder(directory):
        found = found_in(directory)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in found])
        return
    for one in found:
        echo(
            f"{one.topic}-{one.partition}  id {one.topic_id}, offsets {one.log_start_offset} to "
            f"{one.end_offset}, {one.size} bytes, assigned at metadata offset {one.assigned_at}"
        )
    if not found:
        echo("no strays")


@strays.command()
@log_dir_option
@_stray_id
@_partition
@json_option
def delete(directory: Path, topic_id: bytes, partition: int, as_json: bool) -> None:
    """Delete one of these logs. There may be no other copy of its records.

    \b
    Example:
      quorate log strays delete --log-dir ./quorate-data/broker-1 \\
          --topic-id 1f0c6b1e9f7b4c0d8a6c2b5d7e9f0a13 --partition 0
    """
    from quorate.broker.log.recovery import strays as found

    with held_folder(directory):
        found.delete(directory, topic_id, partition)
    _say("deleted", topic_id, partition, as_json=as_json)


@strays.command()
@log_dir_option
@_stray_id
@_partition
@_id_option("--to-topic-id", "The id of the topic that gets the log, as topics describe shows it.")
@json_option
def restore(
    directory: Path, topic_id: bytes, partition: int, to_topic_id: bytes, as_json: bool
) -> None:
    """Make one of these logs the log of the same partition of another topic id.

    The broker then declares this replica lost: it leaves the ISR, and takes from its leader what it
    lacks. To have its records instead, let no other replica lead: give the partition this broker
    as its only replica, and accept the loss with `quorate elect-leaders --election-type unclean`.

    \b
    Example:
      quorate log strays restore --log-dir ./quorate-data/broker-1 --partition 0 \\
          --topic-id 1f0c6b1e9f7b4c0d8a6c2b5d7e9f0a13 \\
          --to-topic-id HwxrHp97TA2KbCtdfp8KEg
    """
    from quorate.broker.log.recovery import strays as found

    with held_folder(directory):
        found.restore(directory, topic_id, partition, to_topic_id)
    _say("restored", topic_id, partition, as_json=as_json)


def _say(done: str, topic_id: bytes, partition: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"done": done, "topic_id": topic_id.hex(), "partition": partition})
    else:
        echo(f"{done} partition {partition} of topic id {topic_id.hex()}")
