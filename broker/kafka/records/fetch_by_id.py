"""Fetch from version 13 on: the topics that a client names by their ids (KIP-516).

The positions of such a request remember the id. So a topic that was created again under a name is
not read in place of the one before it, whenever it takes the name.
"""

import msgspec

from quorate.broker.kafka.records.fetch_messages import FetchRequest, FetchTopic, WirePositions
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.replication.api import FetchPartition
from quorate.common.types import TopicId, TopicPartition

UNKNOWN: str = ""
"""The name of a topic that is not known by its id."""


def with_names(request: FetchRequest, metadata: MetadataCache) -> FetchRequest:
    """Return the request with the names of its topics, if it names them by their ids."""
    if request.unnamed is None:
        return request
    topics = [
        _named(metadata.topic_name(topic_id) or UNKNOWN, topic_id, positions)
        for topic_id, positions in request.unnamed
    ]
    return msgspec.structs.replace(request, topics=topics, unnamed=[])


def _named(name: str, topic_id: TopicId, positions: WirePositions) -> FetchTopic:
    wants = [
        FetchPartition(
            TopicPartition(name, partition), offset, max_bytes, leader_epoch, topic_id=topic_id
        )
        for partition, leader_epoch, offset, max_bytes in positions
    ]
    return name, topic_id, wants
