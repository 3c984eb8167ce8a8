"""The options of ``quorate topics describe`` that show only partitions in some trouble."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from quorate.client.results import ClusterStatus, PartitionName, TopicInfo

Command = TypeVar("Command", bound=Callable[..., Any])

_TROUBLES: Final[Mapping[str, tuple[str, str]]] = {
    "under_replicated_partitions": (
        "under_replicated_partitions",
        "Only show partitions whose ISR lacks a replica.",
    ),
    "unavailable_partitions": (
        "offline_partitions",
        "Only show partitions that have no leader.",
    ),
    "under_min_isr_partitions": (
        "under_min_isr_partitions",
        "Only show partitions with fewer replicas in sync than min.insync.replicas.",
    ),
    "at_min_isr_partitions": (
        "at_min_isr_partitions",
        "Only show partitions that lack a replica, and have exactly min.insync.replicas in sync.",
    ),
}
"""The parameter of each option → the field of the cluster's status, and the help."""


def trouble_options(command: Command) -> Command:
    """Add an option for each kind of trouble, with Kafka's name."""
    for parameter, (_, text) in reversed(list(_TROUBLES.items())):
        option = f"--{parameter.replace('_', '-')}"
        command = click.option(option, parameter, is_flag=True, help=text)(command)
    return command


def troubled(status: "ClusterStatus", wanted: Mapping[str, bool]) -> "Collection[PartitionName]":
    """Return the partitions that have one of the wanted troubles."""
    return {
        name
        for parameter, is_wanted in wanted.items()
        if is_wanted
        for name in getattr(status, _TROUBLES[parameter][0])
    }


def only_troubled(
    topics: "Sequence[TopicInfo]", names: "Collection[PartitionName]"
) -> "list[TopicInfo]":
    """Return the topics with only these partitions; topics without any are left out."""
    wanted = {(name.topic, name.partition) for name in names}
    kept = [
        replace(
            topic,
            partitions=tuple(
                one for one in topic.partitions if (topic.name, one.partition) in wanted
            ),
        )
        for topic in topics
    ]
    return [topic for topic in kept if topic.partitions]
