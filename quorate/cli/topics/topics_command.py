"""``quorate topics``: create, alter, list, describe and delete, with the flags of
kafka-topics.sh."""

import base64
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from quorate.cli.admin_session import open_admin
from quorate.cli.output import echo
from quorate.cli.shared_options import (
    admin_options,
    json_option,
    key_values,
    print_json,
    timeout_option,
)
from quorate.cli.topics.troubled_partitions import only_troubled, trouble_options, troubled

if TYPE_CHECKING:
    from quorate.client.results import TopicInfo, TopicResult

TIMEOUT_MS: Final = 30_000


@click.group()
def topics() -> None:
    """Create, alter, list, describe and delete topics.

    \b
    Example:
      quorate topics create --topic events --partitions 6 --replication-factor 3
      quorate topics describe --topic events
    """


@topics.command()
@admin_options
@click.option("--topic", required=True, help="Name of the topic.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions. Default: num.partitions of the cluster.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Number of replicas of each partition. Default: default.replication.factor of the "
    "cluster.",
)
@click.option(
    "--replica-assignment",
    metavar="1:2:3,2:3:1,…",
    help="Brokers of each partition, the preferred leader first, instead of a placement by the "
    "controller.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A configuration value of the topic.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@timeout_option(TIMEOUT_MS)
@json_option
def create(
    bootstrap_server: str | None,
    data: Path | None,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Create a topic.

    \b
    Example:
      quorate topics create --topic events --partitions 6 --replication-factor 3 \\
        --config min.insync.replicas=2
    """
    from quorate.client.results import CreateTopicsOptions, NewTopic
    from quorate_proto.v1 import errors_pb2

    if replica_assignment and (partitions or replication_factor):
        raise click.UsageError(
            "--replica-assignment says how many partitions and replicas there are: "
            "leave --partitions and --replication-factor out"
        )
    wanted = NewTopic(
        name=topic,
        num_partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        configs=key_values(configs, "--config"),
        assignments=parse_assignment(replica_assignment) if replica_assignment else (),
    )
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        (result,) = admin.create_topics(
            [wanted], CreateTopicsOptions(retry_on_quota_violation=False)
        )
    existed = if_not_exists and result.error_code == errors_pb2.TOPIC_ALREADY_EXISTS
    if not existed:
        result.raise_for_error()
    _show_created(result, existed=existed, as_json=as_json)


def parse_assignment(text: str) -> list[list[int]]:
    """Parse replica assignments: ``1:2,2:1`` gives ``[[1, 2], [2, 1]]``.

    Raises:
        click.UsageError: the text is not of that form.
    """
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--replica-assignment {text}: must be broker ids like 1:2:3,2:3:1"
        ) from None


def _show_created(result: "TopicResult", *, existed: bool, as_json: bool) -> None:
    if as_json:
        document = asdict(result) | {"topic_id": topic_id_text(result.topic_id)}
        print_json(document | {"created": not existed})
    elif existed:
        echo(f"Topic {result.name} already exists.")
    else:
        echo(f"Created topic {result.name}.")


@topics.command()
@admin_options
@click.option("--topic", required=True, help="Name of the topic.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="The total number of partitions after the change.",
)
@click.option(
    "--replica-assignment",
    metavar="1:2:3,2:3:1,…",
    help="Brokers of each new partition, the preferred leader first.",
)
@click.option(
    "--remove-partitions",
    metavar="5,4,…",
    help="Remove these partitions and their data. They must be the partitions with the highest "
    "numbers.",
)
@timeout_option(TIMEOUT_MS)
@json_option
def alter(
    bootstrap_server: str | None,
    data: Path | None,
    topic: str,
    partitions: int | None,
    replica_assignment: str | None,
    remove_partitions: str | None,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Add partitions to a topic, or remove those with the highest numbers.

    \b
    Example:
      quorate topics alter --topic events --partitions 12
      quorate topics alter --topic events --remove-partitions 11,10
    """
    from quorate.client.results import CreatePartitionsOptions, NewPartitions, PartitionName

    if (partitions is None) == (remove_partitions is None):
        raise click.UsageError("give either --partitions or --remove-partitions")
    if replica_assignment and partitions is None:
        raise click.UsageError("--replica-assignment goes with --partitions")
    removed = parse_partitions(remove_partitions) if remove_partitions else []
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        if partitions is not None:
            assignments = parse_assignment(replica_assignment) if replica_assignment else ()
            wanted = NewPartitions(name=topic, count=partitions, assignments=assignments)
            (result,) = admin.create_partitions(
                [wanted], CreatePartitionsOptions(retry_on_quota_violation=False)
            )
        else:
            names = [PartitionName(topic=topic, partition=number) for number in removed]
            (result,) = admin.remove_partitions(names)
    result.raise_for_error()
    if as_json:
        print_json({"name": topic, "num_partitions": result.num_partitions})
    else:
        echo(f"Topic {topic} has {result.num_partitions} partitions.")


def parse_partitions(text: str) -> list[int]:
    """Parse partition numbers: ``5,4`` gives ``[5, 4]``.

    Raises:
        click.UsageError: the text is not of that form.
    """
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--remove-partitions {text}: must be partition numbers like 5,4"
        ) from None


@topics.command("list")
@admin_options
@timeout_option(TIMEOUT_MS)
@json_option
def list_(bootstrap_server: str | None, data: Path | None, timeout_ms: int, as_json: bool) -> None:
    """List the names of all topics.

    \b
    Example:
      quorate topics list --bootstrap-server 127.0.0.1:9092
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        names = admin.list_topics()
    if as_json:
        print_json(names)
    else:
        for name in names:
            echo(name)


@topics.command()
@admin_options
@click.option(
    "--topic",
    "names",
    multiple=True,
    help="Name of a topic; may be given repeatedly. Default: all topics.",
)
@trouble_options
@timeout_option(TIMEOUT_MS)
@json_option
def describe(
    bootstrap_server: str | None,
    data: Path | None,
    names: tuple[str, ...],
    timeout_ms: int,
    as_json: bool,
    **troubles: bool,
) -> None:
    """Show the partitions of topics with their leaders, replicas and ISR.

    With options such as --under-replicated-partitions, show only partitions to which one of them
    applies.

    \b
    Example:
      quorate topics describe --topic events --json
      quorate topics describe --under-replicated-partitions
    """
    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        found = admin.describe_topics(names)
        if any(troubles.values()):
            found = only_troubled(found, troubled(admin.cluster_status(), troubles))
    if as_json:
        print_json([as_document(topic) for topic in found])
    else:
        for topic in found:
            _show(topic)


@topics.command()
@admin_options
@click.option(
    "--topic",
    "names",
    multiple=True,
    required=True,
    help="Name of a topic; may be given repeatedly.",
)
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@timeout_option(TIMEOUT_MS)
@json_option
def delete(
    bootstrap_server: str | None,
    data: Path | None,
    names: tuple[str, ...],
    if_exists: bool,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Delete topics and their data.

    \b
    Example:
      quorate topics delete --topic events --if-exists
    """
    from quorate.client.results import DeleteTopicsOptions
    from quorate_proto.v1 import errors_pb2

    with open_admin(bootstrap_server, data, timeout_ms) as admin:
        results = admin.delete_topics(names, DeleteTopicsOptions(retry_on_quota_violation=False))
    deleted: list[str] = []
    for result in results:
        if if_exists and result.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        result.raise_for_error()
        deleted.append(result.name)
    if as_json:
        print_json({"deleted": deleted})
    else:
        for name in deleted:
            echo(f"Deleted topic {name}.")


def topic_id_text(topic_id: bytes) -> str:
    """Format a topic id as Kafka prints it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def as_document(topic: "TopicInfo") -> dict[str, Any]:
    """Return the topic as the JSON document that scripts read."""
    return asdict(topic) | {"topic_id": topic_id_text(topic.topic_id)}


def _show(topic: "TopicInfo") -> None:
    replication_factor = max((len(partition.replicas) for partition in topic.partitions), default=0)
    echo(
        f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.topic_id)}\t"
        f"PartitionCount: {len(topic.partitions)}\tReplicationFactor: {replication_factor}"
    )
    for partition in topic.partitions:
        leader = "none" if partition.leader < 0 else partition.leader
        echo(
            f"\tTopic: {topic.name}\tPartition: {partition.partition}\tLeader: {leader}\t"
            f"Replicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
            + (f"\tOffline: {_ids(partition.offline)}" if partition.offline else "")
        )


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
