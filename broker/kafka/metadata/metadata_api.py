"""Metadata (3): brokers, topics and leaders, from the metadata cache (C19).

Clients poll this API, and nothing in it changes between two UpdateMetadata requests, so encoded
responses are cached until the next one. Before the first UpdateMetadata a broker knows no topics,
and it would be wrong to respond that a topic does not exist. So it closes the connection, and the
client tries another broker or tries again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from quorate.broker.config.topics import AUTO_CREATE_TOPICS_ENABLE
from quorate.broker.kafka.connection.requests import CloseConnection, RequestContext
from quorate.broker.kafka.metadata.metadata_response import (
    AuthorizedOperations,
    MetadataResponseBuilder,
)
from quorate.broker.kafka.metadata.topic_auto_creation import TopicAutoCreation
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.kafka.wire.primitives import Buffers, Steps
from quorate.broker.metadata.metadata_cache import CachedBroker, MetadataCache
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import BrokerId
from quorate_proto.v1 import errors_pb2

_CACHE_BYTES_MAX: Final = 32 << 20
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

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> bytes:
        if not services.metadata.brokers:
            raise CloseConnection("metadata asked of a broker that was not told of the cluster yet")
        wanted = _wanted_topics(context.version, request)
        rights = services.authorizer.rights_of(context)
        operations = _requested_operations(rights, request)
        if wanted is None:
            return self._all_topics(services, context, rights, operations)
        if any(item["name"] is None for item in wanted):
            builder = MetadataResponseBuilder(
                services, context.version, context.listener, operations
            )
            return builder.encode([_by_id_or_name(builder, item, rights) for item in wanted])
        names = tuple(item["name"] for item in wanted)
        visible = rights.topics(AclOperation.DESCRIBE, names)
        asked = [name for name in names if name in visible]
        errors = await self._create_missing(services, context, request, asked, rights)
        known = services.metadata.topics
        if not operations and all(name in known and name in visible for name in names):
            return self._cached(services, (context.version, context.listener, names))
        builder = MetadataResponseBuilder(services, context.version, context.listener, operations)
        topics = [
            builder.by_name(name, errors) if name in visible else builder.hidden(name)
            for name in names
        ]
        return builder.encode(topics)

    def _all_topics(
        self,
        services: KafkaServices,
        context: RequestContext,
        rights: Rights,
        operations: AuthorizedOperations | None,
    ) -> bytes:
        """Return the response for all topics that the client may see. Other topics are left out,
        as if they did not exist.
        """
        known = services.metadata.topics
        visible = rights.topics(AclOperation.DESCRIBE, known, log_denied=False)
        if not operations and len(visible) == len(known):
            return self._cached(services, (context.version, context.listener, None))
        builder = MetadataResponseBuilder(services, context.version, context.listener, operations)
        return builder.encode([builder.by_name(name) for name in known if name in visible])

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
        missing = [name for name in names if name not in services.metadata.topics]
        enabled = (
            request.get("allow_auto_topic_creation", True)
            and services.config[AUTO_CREATE_TOPICS_ENABLE]
        )
        if not missing or not enabled:
            return {}
        may = frozenset(missing)
        if not rights.may_cluster(AclOperation.CREATE, log_denied=False):
            may = rights.topics(AclOperation.CREATE, missing)
        errors = dict.fromkeys(missing, _NOT_AUTHORIZED)
        creatable = [name for name in missing if name in may]
        if creatable:
            errors.update(await self._creation.create(services.forwarder, context, creatable))
        return errors

    def _cached(self, services: KafkaServices, key: _ResponseKey) -> bytes:
        """Return the response for topics that exist, from the cache if possible."""
        self._forget_outdated(services.metadata)
        version, listener, names = key
        encoded = self._responses.get(key)
        if encoded is None:
            builder = MetadataResponseBuilder(services, version, listener)
            every = services.metadata.topics if names is None else names
            encoded = builder.encode([builder.by_name(name) for name in every])
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


def _by_id_or_name(builder: MetadataResponseBuilder, item: Message, rights: Rights) -> Message:
    name = item["name"]
    if name is None:
        return builder.by_id(
            item["topic_id"], lambda found: rights.may_topic(AclOperation.DESCRIBE, found)
        )
    if rights.may_topic(AclOperation.DESCRIBE, name):
        return builder.by_name(name)
    return builder.hidden(name)


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
