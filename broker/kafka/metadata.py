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
from broker.kafka.metadata_answer import MetadataAnswer, Operations
from broker.kafka.requests import Buffers, CloseConnection, RequestContext
from broker.kafka.services import KafkaServices
from broker.security.authorizer import Rights
from broker.told_metadata import KnownBroker, ToldMetadata
from metadata_log.acls import AclOperation, ResourceType
from metadata_log.types import BrokerId
from quorate_proto.v1 import errors_pb2

_CACHE_BYTES_MAX: Final = 32 << 20
_NOT_AUTHORIZED: Final[int] = errors_pb2.TOPIC_AUTHORIZATION_FAILED

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
        rights = services.authorizer.rights_of(context)
        operations = _operations_asked(rights, request)
        if wanted is None:
            return [self._of_all(services, context, rights, operations)]
        if any(item["name"] is None for item in wanted):
            answer = MetadataAnswer(services, context.version, context.listener, operations)
            return [answer.encode([_by_id_or_name(answer, item, rights) for item in wanted])]
        names = tuple(item["name"] for item in wanted)
        seen = rights.topics(AclOperation.DESCRIBE, names)
        asked = [name for name in names if name in seen]
        errors = await self._create_missing(services, context, request, asked, rights)
        known = services.metadata.topics
        if not operations and all(name in known and name in seen for name in names):
            return [self._cached(services, (context.version, context.listener, names))]
        answer = MetadataAnswer(services, context.version, context.listener, operations)
        topics = [
            answer.by_name(name, errors) if name in seen else answer.hidden(name) for name in names
        ]
        return [answer.encode(topics)]

    def _of_all(
        self,
        services: KafkaServices,
        context: RequestContext,
        rights: Rights,
        operations: Operations | None,
    ) -> bytes:
        """Of every topic that the asker may know of: the others are not there for it."""
        known = services.metadata.topics
        seen = rights.topics(AclOperation.DESCRIBE, known, log_denied=False)
        if not operations and len(seen) == len(known):
            return self._cached(services, (context.version, context.listener, None))
        answer = MetadataAnswer(services, context.version, context.listener, operations)
        return answer.encode([answer.by_name(name) for name in known if name in seen])

    async def _create_missing(
        self,
        services: KafkaServices,
        context: RequestContext,
        request: Message,
        names: Sequence[str],
        rights: Rights,
    ) -> Mapping[str, int]:
        """Error code per name that could not be created, or is not there yet."""
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


def _by_id_or_name(answer: MetadataAnswer, item: Message, rights: Rights) -> Message:
    name = item["name"]
    if name is None:
        return answer.by_id(
            item["topic_id"], lambda found: rights.may_topic(AclOperation.DESCRIBE, found)
        )
    if rights.may_topic(AclOperation.DESCRIBE, name):
        return answer.by_name(name)
    return answer.hidden(name)


def _operations_asked(rights: Rights, request: Message) -> Operations | None:
    """What is asked about the asker's own rights (KIP-430); None: nothing."""
    topics = request.get("include_topic_authorized_operations", False)
    cluster = request.get("include_cluster_authorized_operations", False)
    if not topics and not cluster:
        return None
    return Operations(
        of_topic=(lambda name: rights.operations(ResourceType.TOPIC, name)) if topics else None,
        of_cluster=rights.cluster_operations() if cluster else None,
    )
