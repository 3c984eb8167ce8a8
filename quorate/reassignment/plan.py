"""A plan says where each partition's replicas are to be; its JSON is that of Kafka's tool.

``{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}``
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from quorate.client.errors import QuorateError
from quorate.client.results import PartitionName, TopicInfo

Replicas = tuple[int, ...]

Assignment = Mapping[PartitionName, Replicas]
"""Replicas by partition, the preferred one first."""

VERSION: Final = 1

PLAN_FORM: Final = '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}'
TOPICS_FORM: Final = '{"version":1,"topics":[{"topic":"foo"}]}'


class PlanError(QuorateError):
    """A plan cannot be read, made or carried out; the message says what to change."""


def read_plan(path: Path) -> Assignment:
    """The plan in a file. ``log_dirs``, which a Kafka plan may have, must be "any".

    Raises:
        PlanError: not a plan, or with a partition named twice.
    """
    document = _read(path, PLAN_FORM)
    plan: dict[PartitionName, Replicas] = {}
    try:
        for item in document["partitions"]:
            name = PartitionName(topic=str(item["topic"]), partition=int(item["partition"]))
            if name in plan:
                raise PlanError(f"{path} names {text_of(name)} more than once")
            _check_log_dirs(path, name, item)
            plan[name] = tuple(int(one) for one in item["replicas"])
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed(path, PLAN_FORM, error) from error
    if not plan:
        raise PlanError(f"{path} names no partition")
    return plan


def _check_log_dirs(path: Path, name: PartitionName, item: Mapping[str, Any]) -> None:
    wanted = set(item.get("log_dirs", ())) - {"any"}
    if wanted:
        raise PlanError(
            f"{path} asks for log directories {sorted(wanted)} of {text_of(name)}: a broker has "
            'one, so leave log_dirs out or say "any"'
        )


def read_topics(path: Path) -> list[str]:
    """The names in a topics-to-move file.

    Raises:
        PlanError: not such a file, or with a topic named twice.
    """
    document = _read(path, TOPICS_FORM)
    try:
        names = [str(item["topic"]) for item in document["topics"]]
    except (KeyError, TypeError) as error:
        raise _malformed(path, TOPICS_FORM, error) from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanError(f"{path} names topics {twice} more than once")
    if not names:
        raise PlanError(f"{path} names no topic")
    return names


def _read(path: Path, form: str) -> Any:  # noqa: ANN401 - JSON
    try:
        document = json.loads(path.read_text())
        version = document.get("version", VERSION)
    except (OSError, ValueError, AttributeError) as error:
        raise _malformed(path, form, error) from error
    if version != VERSION:
        raise PlanError(f"{path} is of version {version}: version {VERSION} is understood")
    return document


def _malformed(path: Path, form: str, error: Exception) -> PlanError:
    return PlanError(f"{path} does not hold {form}: {error!r}")


def plan_text(assignment: Assignment) -> str:
    """The plan as one line of JSON, sorted, as Kafka's tool prints it."""
    partitions = [
        {
            "topic": name.topic,
            "partition": name.partition,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for name, replicas in sorted(assignment.items(), key=lambda item: by_name(item[0]))
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def assignment_of(topics: Iterable[TopicInfo]) -> Assignment:
    """Where the partitions of ``topics`` are."""
    return {
        PartitionName(topic=topic.name, partition=partition.partition): partition.replicas
        for topic in topics
        for partition in topic.partitions
    }


def by_name(name: PartitionName) -> tuple[str, int]:
    """Sort key of partitions."""
    return name.topic, name.partition


def text_of(name: PartitionName) -> str:
    """``orders-0``."""
    return f"{name.topic}-{name.partition}"


def texts_of(names: Iterable[PartitionName]) -> str:
    """``orders-0,orders-1``, sorted."""
    return ",".join(text_of(name) for name in sorted(names, key=by_name))
