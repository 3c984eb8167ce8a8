"""DescribeTopicPartitions (75): the topics page by page, from the metadata cache (KIP-966).

Pages follow the order of names, and a cursor says where the next page begins. A topic that is
created or deleted between two pages may or may not be in a page.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metadata.packed_topics import KnownPartition, offline_replicas
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import NO_BROKER
from quorate_proto.v1 import errors_pb2

PARTITIONS_MAX: Final = 2_000
"""The most partitions in one response, even if the client asks for more."""

TOPICS_MAX: Final = 2_000
"""The most topics in one response. Topics that do not exist have no partitions."""

_OPERATIONS_UNKNOWN: Final = -(2**31)


async def describe_topic_partitions(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    cursor = request["cursor"]
    view = _View(services.metadata, services.authorizer.rights_of(context))
    names = await view.names(services.turns, {topic["name"] for topic in request["topics"]})
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor["topic_name"]]
        if names and names[0] == cursor["topic_name"]:
            first = max(0, cursor["partition_index"])
    room = max(1, min(request["response_partition_limit"], PARTITIONS_MAX))
    topics: list[Message] = []
    next_cursor: Message | None = None
    async for name in services.turns.through(names):
        if room == 0 or len(topics) == TOPICS_MAX:
            next_cursor = {"topic_name": name, "partition_index": first}
            break
        topic, left = view.topic(name, first, room)
        topics.append(topic)
        room -= len(topic["partitions"])
        if left:
            beyond = first + len(topic["partitions"])
            next_cursor = {"topic_name": name, "partition_index": beyond}
            break
        first = 0
    shown = sum(len(topic["partitions"]) for topic in topics)
    await AnswerPrice(services, context).add(len(topics) + shown)
    values = {"throttle_time": 0, "topics": topics, "next_cursor": next_cursor}
    return values


class _View:
    """The topics that the client may see. The client does not see even the names of other
    topics.
    """

    def __init__(self, metadata: MetadataCache, rights: Rights) -> None:
        self._metadata = metadata
        self._rights = rights

    async def names(self, turns: WorkTurns, wanted: set[str]) -> list[str]:
        """Return the topics ``wanted``, or all topics that the client may see if none is named."""
        if wanted:
            return sorted(wanted)
        may = self._rights.may_topic
        return sorted(
            [
                name
                async for name in turns.through(tuple(self._metadata.topics))
                if may(AclOperation.DESCRIBE, name, log_denied=False)
            ]
        )

    def topic(self, name: str, first: int, room: int) -> tuple[Message, bool]:
        """Return up to ``room`` partitions of a topic, beginning with partition ``first``, and
        whether there are more.
        """
        topic: Message = {
            "error_code": errors_pb2.NONE,
            "name": name,
            "topic_id": None,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": [],
            "topic_authorized_operations": _OPERATIONS_UNKNOWN,
        }
        known = self._metadata.topics.get(name)
        if not self._rights.may_topic(AclOperation.DESCRIBE, name):
            topic["error_code"] = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        elif known is None:
            topic["error_code"] = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        else:
            end = min(len(known.partitions), first + room)
            topic["topic_id"] = UUID(bytes=known.topic_id)
            topic["partitions"] = list(_partitions(self._metadata, known.partitions, first, end))
            topic["topic_authorized_operations"] = self._rights.operations(ResourceType.TOPIC, name)
            return topic, end < len(known.partitions)
        return topic, False


def _partitions(
    metadata: MetadataCache, partitions: Sequence[KnownPartition], first: int, end: int
) -> Iterator[Message]:
    live = metadata.brokers
    for number in range(first, end):
        partition = partitions[number]
        led = partition.leader in live
        yield {
            "error_code": errors_pb2.NONE if led else errors_pb2.LEADER_NOT_AVAILABLE,
            "partition_index": number,
            "leader_id": partition.leader if led else NO_BROKER,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "eligible_leader_replicas": (),
            "last_known_elr": (),
            "offline_replicas": offline_replicas(partition, live),
        }
