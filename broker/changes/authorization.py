"""Decides which rights each change needs (F5). Rights are checked where the change is carried out.

A change that reaches the controller, by whatever path, is made on behalf of a principal. That
principal's rights count, never those of the broker that forwarded it. A denied item never stops the
others: it is removed from the request, and its refusal takes the place of its result.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeAlias

from quorate.broker.changes import table as changes
from quorate.broker.changes.table import A, Change, Q
from quorate.broker.common.errors import KafkaError
from quorate.broker.config.group_keys import GROUP
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicId
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2, errors_pb2

NOT_DISCLOSED: Final = -1
"""The number of partitions and replicas in the answer for a topic whose configuration the requester
may not see."""


class Permission(NamedTuple, Generic[Q, A]):
    """The part of a request that may be carried out.

    ``request`` is that part, or None if it is empty. ``complete`` turns the answer to that part (an
    empty answer, if it is nothing) into the answer to the whole request.
    """

    request: Q | None
    complete: Callable[[A], A]


Guard: TypeAlias = Callable[[Change[Any, Any], Any, Rights, Image], Permission[Any, Any]]

Denial: TypeAlias = tuple[int, str] | None
"""The error code and message of a refusal, or None if there is none."""


def authorize(change: Change[Q, A], request: Q, rights: Rights, image: Image) -> Permission[Q, A]:
    """Return the part of ``request`` that a principal with ``rights`` may have carried out."""
    return GUARDS[change.rpc](change, request, rights, image)


# --- kinds of guards ----------------------------------------------------------------------------


def _everything(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Permission[Any, Any]:
    return Permission(request, lambda answer: answer)


def _with_the_cluster(operation: AclOperation, *, needs_authorizer: bool = False) -> Guard:
    """Return a guard that allows all or nothing.

    ``needs_authorizer`` means that the change has no effect without an authorizer, so it is refused
    then.
    """

    def guard(
        change: Change[Any, Any],
        request: Any,  # noqa: ANN401 - the change's
        rights: Rights,
        image: Image,
    ) -> Permission[Any, Any]:
        try:
            if needs_authorizer:
                rights.require_authorizer()
            rights.require_cluster(operation)
        except KafkaError as error:
            failed = change.failed(request, error.code, error.message)
            return Permission(None, lambda _: failed)
        return _everything(change, request, rights, image)

    return guard


def _item_by_item(
    denial: Callable[[Rights, Image, Any], Denial], *, items: Sequence[str], results: str
) -> Guard:
    """Return a guard that checks item by item.

    ``items`` are fields of the request. ``results`` is the field of the answer with one result for
    each item.
    """

    def guard(
        change: Change[Any, Any],
        request: Any,  # noqa: ANN401 - the change's
        rights: Rights,
        image: Image,
    ) -> Permission[Any, Any]:
        asked = [(field, item) for field in items for item in getattr(request, field)]
        denials = [denial(rights, image, item) for _, item in asked]
        if not any(denials):
            return _everything(change, request, rights, image)
        frame = _without(request, items)
        refused = [
            getattr(change.failed(_with(frame, [one]), *denied), results)[0] if denied else None
            for one, denied in zip(asked, denials, strict=True)
        ]
        held = [one for one, denied in zip(asked, denials, strict=True) if not denied]
        allowed = _with(frame, held) if held else None
        return Permission(allowed, lambda answer: _put_between(answer, results, refused))

    return guard


def _without(
    request: Any,  # noqa: ANN401 - any change's
    fields: Sequence[str],
) -> Any:  # noqa: ANN401 - as the request
    """Return the request without its items.

    It is made once. A copy for each of many items would cost the square of their number, and a
    client without any right could block the controller.
    """
    part = type(request)()
    part.CopyFrom(request)
    for field in fields:
        part.ClearField(field)
    return part


def _with(
    frame: Any,  # noqa: ANN401 - any change's
    items: Sequence[tuple[str, Any]],
) -> Any:  # noqa: ANN401 - as the frame
    """Return a request with these items, given by field."""
    part = type(frame)()
    part.CopyFrom(frame)
    for field, item in items:
        getattr(part, field).append(item)
    return part


def _put_between(
    answer: Any,  # noqa: ANN401 - any change's
    results: str,
    refused: Sequence[Any],
) -> Any:  # noqa: ANN401 - as the answer
    """Insert the refusals between the results of ``answer``.

    ``refused`` is in the order of the request. It has None where the answer has the result, in
    order.
    """
    outcomes = iter(list(getattr(answer, results)))
    whole = [next(outcomes, None) if one is None else one for one in refused]
    answer.ClearField(results)
    getattr(answer, results).extend(one for one in [*whole, *outcomes] if one is not None)
    return answer


# --- items --------------------------------------------------------------------------------------


def _topic(rights: Rights, operation: AclOperation, name: str) -> Denial:
    return _denial(rights.require_topic, operation, name)


def _denial(require: Callable[..., None], *asked: object) -> Denial:
    try:
        require(*asked)
    except KafkaError as error:
        return error.code, error.message
    return None


def _new_topic(rights: Rights, image: Image, topic: admin_pb2.NewTopic) -> Denial:
    if rights.may_cluster(AclOperation.CREATE, log_denied=False):
        return None
    return _topic(rights, AclOperation.CREATE, topic.name)


def _deleted_topic(rights: Rights, image: Image, topic: str | bytes) -> Denial:
    """Check the deletion of a topic. An id is no secret, but the name of the topic with that id
    is."""
    if isinstance(topic, str):
        return _topic(rights, AclOperation.DELETE, topic)
    name = image.topic_names.get(TopicId(topic))
    if name is None or rights.may_topic(AclOperation.DELETE, name):
        return None
    reason = f"not allowed to DELETE TOPIC of id {topic.hex()}"
    return errors_pb2.TOPIC_AUTHORIZATION_FAILED, reason


def _growing_topic(rights: Rights, image: Image, topic: admin_pb2.NewPartitions) -> Denial:
    return _topic(rights, AclOperation.ALTER, topic.name)


def _shrinking_topic(rights: Rights, image: Image, topic: admin_pb2.TopicPartitions) -> Denial:
    """Check the removal of partitions, which Kafka lacks. It alters the topic and deletes data."""
    return _topic(rights, AclOperation.ALTER, topic.topic) or _topic(
        rights, AclOperation.DELETE, topic.topic
    )


def _configured(
    rights: Rights, image: Image, entity: admin_pb2.ConfigChange | admin_pb2.ConfigReplacement
) -> Denial:
    """Check a change of configuration. What is no topic or group belongs to the cluster."""
    if entity.entity_type == "topic":
        return _topic(rights, AclOperation.ALTER_CONFIGS, entity.entity_name)
    if entity.entity_type == GROUP:
        return _denial(rights.require_group, AclOperation.ALTER_CONFIGS, entity.entity_name)
    return _denial(rights.require_cluster, AclOperation.ALTER_CONFIGS)


# --- changes that are like no other -------------------------------------------------------------

_ITEMS_TO_CREATE: Final = _item_by_item(_new_topic, items=["topics"], results="topics")


def _creating_topics(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Permission[Any, Any]:
    """Return the configuration of a new topic only to principals that may see it (KIP-525)."""
    permission = _ITEMS_TO_CREATE(change, request, rights, image)

    def without_configuration(
        answer: admin_pb2.CreateTopicsResponse,
    ) -> admin_pb2.CreateTopicsResponse:
        whole: admin_pb2.CreateTopicsResponse = permission.complete(answer)
        for topic in whole.topics:
            if not topic.error_code and not rights.may_topic(
                AclOperation.DESCRIBE_CONFIGS, topic.name, log_denied=False
            ):
                topic.num_partitions = topic.replication_factor = NOT_DISCLOSED
                topic.ClearField("configs")
        return whole

    return Permission(permission.request, without_configuration)


def _altering_pipeline(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Permission[Any, Any]:
    """Check a step like one of a group with the pipeline's name: READ allows steps, DELETE allows
    to end it."""
    deletes = request.WhichOneof("action") == "delete"
    operation = AclOperation.DELETE if deletes else AclOperation.READ
    if denied := _denial(rights.require_group, operation, request.name):
        failed = change.failed(request, *denied)
        return Permission(None, lambda _: failed)
    return _everything(change, request, rights, image)


def _creating_token(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Permission[Any, Any]:
    """Allow a token for oneself, and for another user with CREATE_TOKENS on that user (KIP-373)."""
    owner = request.owner
    if (
        not owner
        or owner == str(rights.principal)
        or rights.may(AclOperation.CREATE_TOKENS, ResourceType.USER, owner)
    ):
        return _everything(change, request, rights, image)
    reason = rights.refusal(AclOperation.CREATE_TOKENS, ResourceType.USER, owner)
    failed = change.failed(request, errors_pb2.DELEGATION_TOKEN_AUTHORIZATION_FAILED, reason)
    return Permission(None, lambda _: failed)


# --- the table ----------------------------------------------------------------------------------

_CHANGED_ENTITIES: Final = _item_by_item(_configured, items=["changes"], results="results")
_REPLACED_ENTITIES: Final = _item_by_item(_configured, items=["replacements"], results="results")

GUARDS: Final[Mapping[str, Guard]] = MappingProxyType(
    {
        changes.CREATE_TOPICS.rpc: _creating_topics,
        changes.DELETE_TOPICS.rpc: _item_by_item(
            _deleted_topic, items=["names", "topic_ids"], results="topics"
        ),
        changes.CREATE_PARTITIONS.rpc: _item_by_item(
            _growing_topic, items=["topics"], results="topics"
        ),
        changes.REMOVE_PARTITIONS.rpc: _item_by_item(
            _shrinking_topic, items=["topics"], results="topics"
        ),
        changes.ELECT_LEADERS.rpc: _with_the_cluster(AclOperation.ALTER),
        changes.ALTER_PARTITION_REASSIGNMENTS.rpc: _with_the_cluster(AclOperation.ALTER),
        changes.LIST_PARTITION_REASSIGNMENTS.rpc: _with_the_cluster(AclOperation.DESCRIBE),
        changes.UPDATE_FEATURES.rpc: _with_the_cluster(AclOperation.ALTER),
        changes.ALLOCATE_PRODUCER_IDS.rpc: _everything,
        changes.ALTER_CONFIGS.rpc: _REPLACED_ENTITIES,
        changes.INCREMENTAL_ALTER_CONFIGS.rpc: _CHANGED_ENTITIES,
        changes.CREATE_ACLS.rpc: _with_the_cluster(AclOperation.ALTER, needs_authorizer=True),
        changes.DELETE_ACLS.rpc: _with_the_cluster(AclOperation.ALTER, needs_authorizer=True),
        changes.ALTER_CLIENT_QUOTAS.rpc: _with_the_cluster(AclOperation.ALTER_CONFIGS),
        changes.CREATE_DELEGATION_TOKEN.rpc: _creating_token,
        changes.RENEW_DELEGATION_TOKEN.rpc: _everything,
        changes.EXPIRE_DELEGATION_TOKEN.rpc: _everything,
        changes.ALTER_USER_SCRAM_CREDENTIALS.rpc: _with_the_cluster(AclOperation.ALTER),
        changes.ALTER_PIPELINE.rpc: _altering_pipeline,
    }
)
"""The guard of each change, by the change's name.

Brokers request producer ids, on their own listener only. A requester that renews or expires a token
proves with the secret that it holds the token, and the token has its owner.
"""
