"""Metadata (3): brokers, topics and leaders, as UpdateMetadata told them (C19).

Clients poll this, and nothing in it changes between two UpdateMetadata, so encoded answers are kept
until the next one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from broker.config import AUTO_CREATE_TOPICS_ENABLE
from broker.kafka import codec
from broker.kafka.auto_create import AutoCreation
from broker.kafka.codec import Message
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices, KnownBroker, KnownPartition, KnownTopic, Metadata
from metadata_log.types import NO_BROKER, BrokerId, TopicId
from quorate_proto.v1 import errors_pb2

_CACHE_BYTES_MAX: Final = 32 << 20
_FIRST_VERSION_WITH_NULLABLE_NAME: Final = 12
_NO_ID: Final = UUID(int=0)

_Shape = tuple[int, tuple[str, ...] | None]
"""Version and topic names (None: all): requests of one shape get the same answer."""


class MetadataApi:
    """The handler, with its cache of answers and the topics being created for clients."""

    def __init__(self) -> None:
        self._creation = AutoCreation()
        self._brokers: Mapping[BrokerId, KnownBroker] | None = None
        self._answers: dict[_Shape, bytes] = {}
        self._answers_bytes = 0

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> Buffers:
        wanted = _wanted_topics(context.version, request)
        if wanted is not None and any(item["name"] is None for item in wanted):
            return [self._encode_by_id(services, context.version, wanted)]
        names = None if wanted is None else tuple(item["name"] for item in wanted)
        errors = await self._create_missing(services, context, request, names or ())
        return [self._answer(services, context.version, names, errors)]

    async def _create_missing(
        self,
        services: KafkaServices,
        context: RequestContext,
        request: Message,
        names: Sequence[str],
    ) -> Mapping[str, int]:
        missing = [name for name in names if name not in services.metadata.topics]
        allowed = (
            request.get("allow_auto_topic_creation", True)
            and services.config[AUTO_CREATE_TOPICS_ENABLE]
        )
        if not missing or not allowed:
            return {}
        return await self._creation.create(services.forwarder, context, missing)

    def _answer(
        self,
        services: KafkaServices,
        version: int,
        names: tuple[str, ...] | None,
        errors: Mapping[str, int],
    ) -> bytes:
        known = services.metadata.topics
        if names is not None and any(name not in known for name in names):
            topics = [_topic_by_name(services.metadata, name, errors) for name in names]
            return _encode(services, version, topics)
        self._forget_outdated(services.metadata)
        cached = self._answers.get((version, names))
        if cached is None:
            topics = [
                _topic(services.metadata, name, known[name])
                for name in (known if names is None else names)
            ]
            cached = _encode(services, version, topics)
            self._remember((version, names), cached)
        return cached

    def _forget_outdated(self, metadata: Metadata) -> None:
        """Every UpdateMetadata replaces the mapping of brokers: its identity tells them apart."""
        if metadata.brokers is not self._brokers:
            self._brokers = metadata.brokers
            self._answers.clear()
            self._answers_bytes = 0

    def _remember(self, shape: _Shape, answer: bytes) -> None:
        if self._answers_bytes + len(answer) > _CACHE_BYTES_MAX:
            self._answers.clear()
            self._answers_bytes = 0
        self._answers[shape] = answer
        self._answers_bytes += len(answer)

    @staticmethod
    def _encode_by_id(services: KafkaServices, version: int, wanted: list[Message]) -> bytes:
        topics = [_topic_by_id(services.metadata, version, item) for item in wanted]
        return _encode(services, version, topics)


def _wanted_topics(version: int, request: Message) -> list[Message] | None:
    """What is asked for; None: all topics, which version 0 says by naming none."""
    topics: list[Message] | None = request["topics"]
    return None if version == 0 and not topics else topics


def _encode(services: KafkaServices, version: int, topics: list[Message]) -> bytes:
    metadata = services.metadata
    controller_id = metadata.controller_id
    return codec.encode_response(
        "metadata",
        version,
        {
            "throttle_time": 0,
            "brokers": [
                {
                    "node_id": broker_id,
                    "host": broker.kafka.host,
                    "port": broker.kafka.port,
                    "rack": broker.rack or None,
                }
                for broker_id, broker in metadata.brokers.items()
            ],
            "cluster_id": services.cluster_id,
            "controller_id": controller_id if controller_id in metadata.brokers else NO_BROKER,
            "topics": topics,
            "error_code": errors_pb2.NONE,
        },
    )


def _topic_by_name(metadata: Metadata, name: str, errors: Mapping[str, int]) -> Message:
    known = metadata.topics.get(name)
    if known is not None:
        return _topic(metadata, name, known)
    return _unknown(errors.get(name, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION), name, None)


def _topic_by_id(metadata: Metadata, version: int, item: Message) -> Message:
    if item["name"] is not None:
        return _topic_by_name(metadata, item["name"], {})
    topic_id: UUID = item.get("topic_id", _NO_ID)
    name = metadata.topic_name(TopicId(topic_id.bytes))
    if name is not None:
        return _topic(metadata, name, metadata.topics[name])
    no_name = None if version >= _FIRST_VERSION_WITH_NULLABLE_NAME else ""
    return _unknown(errors_pb2.UNKNOWN_TOPIC_ID, no_name, topic_id)


def _unknown(error_code: int, name: str | None, topic_id: UUID | None) -> Message:
    return {"error_code": error_code, "name": name, "topic_id": topic_id, "partitions": ()}


def _topic(metadata: Metadata, name: str, topic: KnownTopic) -> Message:
    live = metadata.brokers
    return {
        "error_code": errors_pb2.NONE,
        "name": name,
        "topic_id": UUID(bytes=topic.topic_id),
        "partitions": [
            _partition(index, partition, live) for index, partition in enumerate(topic.partitions)
        ],
    }


def _partition(index: int, partition: KnownPartition, live: Mapping[BrokerId, Any]) -> Message:
    led = partition.leader in live
    return {
        "error_code": errors_pb2.NONE if led else errors_pb2.LEADER_NOT_AVAILABLE,
        "partition_index": index,
        "leader_id": partition.leader if led else NO_BROKER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": [broker for broker in partition.replicas if broker not in live],
    }
