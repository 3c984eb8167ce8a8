"""``quorate elect-leaders``, with the flags of kafka-leader-election.sh."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import admin_options, json_option, print_json, timeout_option

if TYPE_CHECKING:
    from quorate.client.results import PartitionName, PartitionResult


@click.command("elect-leaders")
@admin_options
@click.option(
    "--election-type",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    required=True,
    help="preferred: the first replica becomes the leader, if it is in sync. unclean: where no "
    "in-sync replica is live, any live replica becomes the leader; records that it lacks "
    "are lost.",
)
@click.option(
    "--all-topic-partitions", is_flag=True, help="Elect a leader for every partition that needs it."
)
@click.option("--topic", help="Name of a topic; needs --partition.")
@click.option("--partition", type=click.IntRange(min=0), help="Number of a partition of --topic.")
@click.option(
    "--path-to-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='File that names the partitions: {"partitions": [{"topic": "foo", "partition": 1}, …]}',
)
@timeout_option(30_000)
@json_option
def elect_leaders(
    bootstrap_server: str | None,
    data: Path | None,
    election_type: str,
    all_topic_partitions: bool,
    topic: str | None,
    partition: int | None,
    path_to_json_file: Path | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Elect preferred leaders, or unclean ones.

    \b
    Example:
      quorate elect-leaders --election-type preferred --all-topic-partitions
      quorate elect-leaders --election-type unclean --topic events --partition 3
    """
    from quorate.client.errors import RequestFailed
    from quorate.client.results import ElectionType

    wanted = _wanted(all_topic_partitions, topic, partition, path_to_json_file)
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        results = admin.elect_leaders(ElectionType(election_type.lower()), wanted)
    _show(results, election_type.lower(), as_json=as_json)
    failed = [one for one in results if not one.ok and one.error != "ELECTION_NOT_NEEDED"]
    if failed:
        first = failed[0]
        others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise RequestFailed(first.error_code, first.message + others)


def _wanted(
    everything: bool, topic: str | None, partition: int | None, path: Path | None
) -> "list[PartitionName] | None":
    """Return the partitions that are named, or None for all partitions.

    Raises:
        click.UsageError: not exactly one of the three ways to name them was used.
    """
    from quorate.client.results import PartitionName

    if sum((everything, topic is not None, path is not None)) != 1:
        raise click.UsageError(
            "which partitions? Give one of --all-topic-partitions, --topic with --partition, "
            "--path-to-json-file"
        )
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition go together")
    if topic is not None and partition is not None:
        return [PartitionName(topic=topic, partition=partition)]
    return None if path is None else _read_partitions(path)


def _read_partitions(path: Path) -> "list[PartitionName]":
    from quorate.client.results import PartitionName

    try:
        named: list[dict[str, Any]] = json.loads(path.read_text())["partitions"]
        return [
            PartitionName(topic=str(one["topic"]), partition=int(one["partition"])) for one in named
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(
            f'{path} does not hold {{"partitions": [{{"topic": "foo", "partition": 1}}]}}: '
            f"{error!r}"
        ) from error


def _show(results: "Sequence[PartitionResult]", election_type: str, *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in results])
        return
    if not results:
        echo("No partition needs an election.")
    elected = [one for one in results if one.ok]
    already = [one for one in results if one.error == "ELECTION_NOT_NEEDED"]
    if elected:
        echo(f"Completed {election_type} leader election of {_names(elected)}.")
    if already:
        echo(f"A valid leader was elected already for {_names(already)}.")


def _names(results: "Sequence[PartitionResult]") -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in results)
