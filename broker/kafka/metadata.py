"""Metadata (3): brokers, topics and leaders, as UpdateMetadata told them (C19).

Clients poll this, and nothing in it changes between two UpdateMetadata, so encoded answers are kept
until the next one. Before the first one a broker knows nothing, and to say that a topic does not
exist would be wrong: the connection is closed, and the client tries elsewhere or later.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from broker.config.topics import AUTO_CREATE_TOPICS_ENABLE
from broker.kafka.auto_create import AutoCreation
from broker.kafka.codec import Message
from broker.kafka.metadata_answer import MetadataAnswer
from broker.kafka.requests import Buffers, CloseConnection, RequestContext
from broker.kafka.services import KafkaServices
from broker.told_metadata import KnownBroker, ToldMetadata
from metadata_log.types import BrokerId

_CACHE_BYTES_MAX: Final = 32 << 20

_Shape = tuple[int, str, tuple[str, ...] | None]
"""Version, listener and topic names (None: all): requests of one shape get the same answer."""


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
        if not services.metadata.brokers:
            raise CloseConnection("metadata asked of a broker that was not told of the cluster yet")
        wanted = _wanted_topics(context.version, request)
        if wanted is not None and any(item["name"] is None for item in wanted):
            answer = MetadataAnswer(services, context.version, context.listener)
            return [answer.encode([_by_id_or_name(answer, item) for item in wanted])]
        names = None if wanted is None else tuple(item["name"] for item in wanted)
        errors = await self._create_missing(services, context, request, names or ())
        known = services.metadata.topics
        if names is not None and any(name not in known for name in names):
            answer = MetadataAnswer(services, context.version, context.listener)
            return [answer.encode([answer.by_name(name, errors) for name in names])]
        return [self._cached(services, (context.version, context.listener, names))]

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

    def _cached(self, services: KafkaServices, shape: _Shape) -> bytes:
        """The answer for topics that exist."""
        self._forget_outdated(services.metadata)
        version, listener, names = shape
        encoded = self._answers.get(shape)
        if encoded is None:
            answer = MetadataAnswer(services, version, listener)
            every = services.metadata.topics if names is None else names
            encoded = answer.encode([answer.by_name(name) for name in every])
            self._remember(shape, encoded)
        return encoded

    def _forget_outdated(self, metadata: ToldMetadata) -> None:
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


def _wanted_topics(version: int, request: Message) -> list[Message] | None:
    """What is asked for; None: all topics, which version 0 says by naming none."""
    topics: list[Message] | None = request["topics"]
    return None if version == 0 and not topics else topics


def _by_id_or_name(answer: MetadataAnswer, item: Message) -> Message:
    if item["name"] is None:
        return answer.by_id(item["topic_id"])
    return answer.by_name(item["name"])
