"""Metadata paths, as ZooKeeper users know them, and the version of the record at a path."""

from collections.abc import Callable
from typing import Final

from quorate.common.types import BrokerId, TopicPartition
from quorate.metadata_log.draft import Draft
from quorate.metadata_log.image import Image

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_IDS = "/producer_ids"
QUORUM_VOTERS = "/quorum/voters"
ADMINISTRATION = "/administration"


BROKER_IDS = "/brokers/ids/"


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}{broker_id}"


def topic_path(name: str) -> str:
    return f"/brokers/topics/{name}"


def leader_and_isr_path(tp: TopicPartition) -> str:
    return f"/brokers/topics/{tp.topic}/{tp.partition}/leaderAndISR"


def deletion_path(name: str) -> str:
    return f"/admin/delete_topics/{name}"


def reassignment_path(tp: TopicPartition) -> str:
    return f"/admin/partitions_reassigned/{tp.topic}/{tp.partition}"


def addition_path(tp: TopicPartition) -> str:
    return f"/admin/partitions_add/{tp.topic}/{tp.partition}"


def removal_path(tp: TopicPartition) -> str:
    return f"/admin/partitions_remove/{tp.topic}/{tp.partition}"


def token_path(token_id: str) -> str:
    return f"/tokens/{token_id}"


def pipeline_path(name: str) -> str:
    return f"/pipelines/{name}"


def version_at(image: Image | Draft, path: str) -> int | None:
    """Return the version of the record at ``path``, or None if there is none.

    The version is the metadata offset of the record's last change. Counters are their own version:
    /controller_epoch, /producer_ids and leaderAndISR.

    Raises:
        ValueError: no record can ever lie at such a path.
    """
    match path.strip("/").split("/"):
        case ["controller"]:
            return None if image.controller is None else image.controller.version
        case [counter] if counter in _COUNTERS:
            return _COUNTERS[counter](image)
        case ["quorum", "voters"]:
            return image.voter_set.version or None
        case ["brokers", "ids", number] if number.isdecimal():
            broker = image.brokers.get(BrokerId(int(number)))
            return None if broker is None else broker.epoch
        case ["brokers", "topics", name]:
            topic = image.topics.get(name)
            return None if topic is None else topic.version
        case ["brokers", "topics", name, number, "leaderAndISR"] if number.isdecimal():
            partition = image.partition(TopicPartition(name, int(number)))
            return None if partition is None else partition.version
        case [*folder, name] if tuple(folder) in _NAMED:
            return _NAMED[tuple(folder)](image, name)
        case ["admin", kind, name, number] if kind in _PENDING and number.isdecimal():
            return _PENDING[kind](image, TopicPartition(name, int(number)))
    raise ValueError(f"no metadata record can lie at {path!r}")


_COUNTERS: Final[dict[str, Callable[[Image | Draft], int | None]]] = {
    "controller_epoch": lambda image: image.controller_epoch or None,
    "producer_ids": lambda image: image.next_producer_id,
    "administration": lambda image: image.administered,
}
"""Records that are their own version, whoever writes them."""


def _deletion(image: Image | Draft, name: str) -> int | None:
    deletion = image.deletions.get(name)
    return None if deletion is None else deletion.version


def _token(image: Image | Draft, token_id: str) -> int | None:
    token = image.tokens.get(token_id)
    return None if token is None else token.version


def _pipeline(image: Image | Draft, name: str) -> int | None:
    pipeline = image.pipelines.get(name)
    return None if pipeline is None else pipeline.version


_NAMED: Final[dict[tuple[str, ...], Callable[[Image | Draft, str], int | None]]] = {
    ("admin", "delete_topics"): _deletion,
    ("tokens",): _token,
    ("pipelines",): _pipeline,
}
"""Records with a version and a plain name, by their folder."""


def _reassignment(image: Image | Draft, tp: TopicPartition) -> int | None:
    pending = image.reassignment(tp)
    return None if pending is None else pending.version


def _addition(image: Image | Draft, tp: TopicPartition) -> int | None:
    pending = image.additions.get(tp.topic)
    if pending is None:
        return None
    is_named = 0 <= tp.partition - pending.first_partition < len(pending.replicas)
    return pending.version if is_named else None


def _removal(image: Image | Draft, tp: TopicPartition) -> int | None:
    pending = image.removals.get(tp.topic)
    if pending is None or tp.partition < pending.first_partition or image.partition(tp) is None:
        return None
    return pending.version


_PENDING: Final[dict[str, Callable[[Image | Draft, TopicPartition], int | None]]] = {
    "partitions_reassigned": _reassignment,
    "partitions_add": _addition,
    "partitions_remove": _removal,
}
"""Pending changes of one partition, by their folder under /admin."""
