"""The topics of OffsetCommit and OffsetFetch from version 10 on, which have ids instead of names
(KIP-848).

Offsets are kept by name. So the names are found first, and the responses have the ids again.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.types import TopicId

FIRST_VERSION: Final = 10
"""The first version of both APIs that names topics by their ids."""


def with_name(services: KafkaServices, topic: Message) -> Message:
    """Return a topic of a request with its name, which is None if no topic has the id."""
    return {**topic, "name": services.metadata.topic_name(TopicId(topic["topic_id"].bytes))}


def by_knowledge(topics: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the topics that have names, and the others."""
    known = [topic for topic in topics if topic["name"] is not None]
    unknown = [topic for topic in topics if topic["name"] is None]
    return known, unknown


def with_ids(services: KafkaServices, topics: Iterable[Message]) -> list[Message]:
    """Return topics with the ids that belong to their names. Topics that do not exist are left out,
    because a response cannot name them.
    """
    known = services.metadata.topics
    return [
        {**topic, "topic_id": UUID(bytes=known[topic["name"]].topic_id)}
        for topic in topics
        if topic["name"] in known
    ]
