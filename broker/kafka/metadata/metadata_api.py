"""Metadata (3): brokers, topics and leaders, from the metadata cache (C19).

Clients poll this API, and nothing in it changes between two UpdateMetadata requests, so encoded
responses are cached until the next one. Before the first UpdateMetadata a broker knows no topics,
and it would be wrong to respond that a topic does not exist. So it closes the connection, and the
client tries another broker or tries again.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

from quorate.broker.common.steps import Steps
from quorate.broker.config.topics import AUTO_CREATE_TOPICS_ENABLE
from quorate.broker.kafka.allowed_topics import allowed_topics
from quorate.broker.kafka.connection.answer_price import hold_bytes
from quorate.broker.kafka.connection.requests import CloseConnection, RequestContext
from quorate.broker.kafka.metadata.metadata_response import (
    AuthorizedOperations,
    MetadataResponseBuilder,
)
from quorate.broker.kafka.metadata.topic_auto_creation import TopicAutoCreation
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.kafka.wire.primitives import Buffers, at_once
from quorate.broker.metadata.metadata_cache import CachedBroker, MetadataCache
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import BrokerId
from quorate_proto.v1 import errors_pb2

_CACHE_BYTES_MAX: Final = 32 << 20
_CACHED_NAMES_MAX: Final = 256
"""The most topics of a cached response, unless it is for all topics. Otherwise a client could push
everything else out of the cache with names in another order each time.
"""

_FEW_PARTITIONS: Final = 1_000
"""The size of a response up to which it is encoded without a break."""

_PARTITION_BYTES: Final = 64
"""The size of a partition, or of a topic, in a response."""

_CREATIONS_MAX: Final = 100
"""The most topics that one request creates. The client is told to ask again for the others."""

_FIRST_VERSION_BY_ID: Final = 12
_NO_ID: Final = UUID(int=0)
_NOT_AUTHORIZED: Final[int] = errors_pb2.TOPIC_AUTHORIZATION_FAILED

_ResponseKey = tuple[int, str, tuple[str, ...] | None]
"""The key of a cached response: version, listener and topic names, or None for all topics.
Requests with the same key get the same response.
"""


class MetadataApi:
    """The handler of Metadata, with its cache of responses and the topics that are being created
    for clients.
    """

    def __init__(self) -> None:
        self._creation = TopicAutoCreation()
        self._brokers: Mapping[BrokerId, CachedBroker] | None = None
        self._responses: dict[_ResponseKey, bytes] = {}
        self._responses_bytes = 0
        self._all_topics_turn = asyncio.Lock()
        """Many clients ask for all topics at the same time. The first one has the response
        encoded, the others find it in the cache.
        """

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> bytes:
        if not services.metadata.brokers:
            raise CloseConnection("metadata asked of a broker that was not told of the cluster yet")
        wanted = _wanted_topics(context.version, request)
        rights = services.authorizer.rights_of(context)
        operations = _requested_operations(rights, request)
        if wanted is None:
            return await self._all_topics(services, context, rights, operations)
        # A topic may have very many partitions, so it is described once (issue 17).
        topic_ids = {
            item["topic_id"]: None
            async for item in services.turns.through(wanted)
            if _is_by_id(item)
        }
        if topic_ids:
            builder = MetadataResponseBuilder(
                services, context.version, context.listener, operations
            )
            topics: Iterable[Steps[Message]]
            if context.version < _FIRST_VERSION_BY_ID:
                topics = (_refused(item) for item in wanted)
                return await _encoded(services, context, builder, topics, len(wanted), None)
            topics = (_by_id(builder, topic_id, rights) for topic_id in topic_ids)
            return await _encoded(services, context, builder, topics, len(topic_ids), None)
        names = {item["name"]: None async for item in services.turns.through(wanted)}
        return await self._named_topics(
            services, context, request, tuple(names), rights, operations
        )

    async def _named_topics(
        self,
        services: KafkaServices,
        context: RequestContext,
        request: Message,
        names: tuple[str, ...],
        rights: Rights,
        operations: AuthorizedOperations | None,
    ) -> bytes:
        visible = await allowed_topics(services, rights, AclOperation.DESCRIBE, names)
        asked: Sequence[str] = names
        if len(visible) < len(names):
            asked = [name async for name in services.turns.through(names) if name in visible]
        errors = await self._create_missing(services, context, request, asked, rights)
        known = services.metadata.topics
        if (
            not operations
            and len(visible) == len(names) <= _CACHED_NAMES_MAX
            and all([name in known for name in names])
        ):
            return await self._cached(services, context, names)
        builder = MetadataResponseBuilder(services, context.version, context.listener, operations)
        topics = (
            builder.by_name(name, errors) if name in visible else builder.hidden(name)
            for name in names
        )
        return await _encoded(services, context, builder, topics, len(names), asked)

    async def _all_topics(
        self,
        services: KafkaServices,
        context: RequestContext,
        rights: Rights,
        operations: AuthorizedOperations | None,
    ) -> bytes:
        """Return the response for all topics that the client may see. Other topics are left out,
        as if they did not exist.
        """
        known = tuple(services.metadata.topics)
        visible = await allowed_topics(
            services, rights, AclOperation.DESCRIBE, known, log_denied=False
        )
        if not operations and len(visible) == len(known):
            async with self._all_topics_turn:
                return await self._cached(services, context, None)
        builder = MetadataResponseBuilder(services, context.version, context.listener, operations)
        names = [name async for name in services.turns.through(known) if name in visible]
        topics = (builder.by_name(name) for name in names)
        return await _encoded(services, context, builder, topics, len(names), names)

    async def _create_missing(
        self,
        services: KafkaServices,
        context: RequestContext,
        request: Message,
        names: Sequence[str],
        rights: Rights,
    ) -> Mapping[str, int]:
        """Create topics that do not exist. Return an error code for each topic that could not be
        created, or that this broker does not know yet.
        """
        enabled = (
            request.get("allow_auto_topic_creation", True)
            and services.config[AUTO_CREATE_TOPICS_ENABLE]
        )
        if not enabled:
            return {}
        known, turns = services.metadata.topics, services.turns
        missing = [name async for name in turns.through(names) if name not in known]
        if not missing:
            return {}
        may = frozenset(missing)
        if not rights.may_cluster(AclOperation.CREATE, log_denied=False):
            may = await allowed_topics(services, rights, AclOperation.CREATE, missing)
        errors: dict[str, int] = {
            name: errors_pb2.LEADER_NOT_AVAILABLE if name in may else _NOT_AUTHORIZED
            async for name in turns.through(missing)
        }
        creatable = [*islice((name for name in missing if name in may), _CREATIONS_MAX)]
        if creatable:
            errors.update(await self._creation.create(services.forwarder, context, creatable))
        return errors

    async def _cached(
        self, services: KafkaServices, context: RequestContext, names: tuple[str, ...] | None
    ) -> bytes:
        """Return the response for few topics that exist, from the cache if possible. ``names`` is
        None for all topics.
        """
        metadata = services.metadata
        self._forget_outdated(metadata)
        key = (context.version, context.listener, names)
        encoded = self._responses.get(key)
        if encoded is None:
            brokers = metadata.brokers
            builder = MetadataResponseBuilder(services, context.version, context.listener)
            every = tuple(metadata.topics) if names is None else names
            topics = (builder.by_name(name) for name in every)
            encoded = await _encoded(services, context, builder, topics, len(every), every)
            if brokers is self._brokers:
                self._remember(key, encoded)
        return encoded

    def _forget_outdated(self, metadata: MetadataCache) -> None:
        """Clear the cache after an UpdateMetadata request. Each one replaces the mapping of
        brokers, so the identity of the mapping shows the change.
        """
        if metadata.brokers is not self._brokers:
            self._brokers = metadata.brokers
            self._responses.clear()
            self._responses_bytes = 0

    def _remember(self, key: _ResponseKey, response: bytes) -> None:
        if self._responses_bytes + len(response) > _CACHE_BYTES_MAX:
            self._responses.clear()
            self._responses_bytes = 0
        self._responses[key] = response
        self._responses_bytes += len(response)


async def _encoded(
    services: KafkaServices,
    context: RequestContext,
    builder: MetadataResponseBuilder,
    topics: Iterable[Steps[Message]],
    count: int,
    names: Iterable[str] | None,
) -> bytes:
    """Encode a response. A long one is encoded in slices, and its memory is held before that.

    ``names`` are those of the topics, or None if they are not known. ``count`` is their number.

    Raises:
        KafkaError: INVALID_REQUEST. The response would be too long.
    """
    steps = builder.encode(topics)
    total = count
    async for name in services.turns.through(names or ()):
        total += services.metadata.partition_count(name)
    if total <= _FEW_PARTITIONS and names is not None:
        return at_once(steps)
    await hold_bytes(services, context, total * _PARTITION_BYTES)
    return await services.turns.carry_out(steps)


def encode(_version: int, response: bytes) -> Steps[Buffers]:
    """Return the response, which its handler has encoded or taken from the cache."""
    yield from ()
    return [response]


def _wanted_topics(version: int, request: Message) -> list[Message] | None:
    """Return the requested topics, or None for all topics. Version 0 requests all topics by an
    empty list.
    """
    topics: list[Message] | None = request["topics"]
    return None if version == 0 and not topics else topics


def _is_by_id(item: Message) -> bool:
    """Return whether a topic is named by its id. Clients leave the name null or empty then, and if
    any topic of a request is named so, names do not count, as in Kafka.
    """
    return item["name"] is None or item.get("topic_id", _NO_ID) != _NO_ID


def _by_id(builder: MetadataResponseBuilder, topic_id: UUID, rights: Rights) -> Steps[Message]:
    return builder.by_id(topic_id, lambda name: rights.may_topic(AclOperation.DESCRIBE, name))


def _refused(item: Message) -> Steps[Message]:
    """Refuse a topic of a request that names topics by their ids before Kafka has allowed it."""
    yield from ()
    return {
        "error_code": errors_pb2.INVALID_REQUEST,
        "name": item["name"] or "",
        "topic_id": item["topic_id"],
        "partitions": (),
    }


def _requested_operations(rights: Rights, request: Message) -> AuthorizedOperations | None:
    """Return the operations that the client requests (KIP-430), or None if it requests none."""
    topics = request.get("include_topic_authorized_operations", False)
    cluster = request.get("include_cluster_authorized_operations", False)
    if not topics and not cluster:
        return None
    return AuthorizedOperations(
        of_topic=(lambda name: rights.operations(ResourceType.TOPIC, name)) if topics else None,
        of_cluster=rights.cluster_operations() if cluster else None,
    )
