"""The ends of partitions, asked of their leaders."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from quorate.broker.common.errors import error_name
from quorate.broker.console.asking.cluster_requests import ClusterRequests
from quorate.broker.console.asking.console_apis import LIST_OFFSETS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.person import Person
from quorate.broker.kafka.wire.codec import Message
from quorate.common.types import BrokerId, TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0


async def list_offsets(
    requests: ClusterRequests,
    person: Person,
    partitions: Iterable[TopicPartition],
    timestamp: int,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Return the offset of each partition, and why there is none.

    ``timestamp`` is a time in ms, ``LATEST`` or ``EARLIEST``. An offset of -1 means that no record
    is that young.
    """
    by_leader: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
    failed: dict[TopicPartition, str] = {}
    for tp in partitions:
        try:
            by_leader[requests.leader_of(tp)].append(tp)
        except AskFailed as error:
            failed[tp] = str(error)
    bodies = {leader: _request(tps, timestamp) for leader, tps in by_leader.items()}
    answers = await requests.ask_owners(person, LIST_OFFSETS, bodies)
    offsets: dict[TopicPartition, int] = {}
    for leader, answer in answers.items():
        if isinstance(answer, AskFailed):
            failed |= dict.fromkeys(by_leader[leader], str(answer))
            continue
        for topic in answer["topics"]:
            for one in topic["partitions"]:
                tp = TopicPartition(topic["name"], one["partition_index"])
                if one["error_code"]:
                    failed[tp] = error_name(one["error_code"])
                else:
                    offsets[tp] = one["offset"]
    return offsets, failed


def _request(partitions: Iterable[TopicPartition], timestamp: int) -> Message:
    by_topic: defaultdict[str, list[Message]] = defaultdict(list)
    for tp in partitions:
        by_topic[tp.topic].append({"partition_index": tp.partition, "timestamp": timestamp})
    return {
        "replica_id": -1,
        "isolation_level": READ_UNCOMMITTED,
        "topics": [{"name": name, "partitions": of} for name, of in by_topic.items()],
    }


def by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Return the numbers of partitions by topic."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        found[tp.topic].append(tp.partition)
    return found
