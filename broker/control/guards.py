"""What each change asks of the rights of whom it is for (F5): judged where it is carried out. Pure.

A change that reaches the controller, by whatever way, is on somebody's behalf: that principal's
rights count, never those of the broker that passed it on. What one item lacks never stops its
siblings: it is taken out of the request, and its refusal put where its outcome would have been.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from broker.control import changes
from broker.control.changes import A, Change, Q
from broker.errors import KafkaError
from broker.security.authorizer import Rights
from metadata_log.acls import AclOperation, ResourceType
from metadata_log.image import Image
from metadata_log.types import TopicId
from quorate_proto.v1 import admin_pb2, errors_pb2

UNTOLD: Final = -1
"""Number of partitions and of replicas of a topic whose configuration the asker may not see."""


class Verdict(NamedTuple):
    """``allowed``: as much of the request as may be carried out; None: nothing of it.

    ``told``: from the answer to that (an empty one, to nothing) to the answer to the whole.
    """

    allowed: Any
    told: Callable[[Any], Any]


Guard: TypeAlias = Callable[[Change[Any, Any], Any, Rights, Image], Verdict]

Denial: TypeAlias = tuple[int, str] | None
"""Error code and message of what is refused; None: it is not."""


async def guarded(
    change: Change[Q, A],
    request: Q,
    rights: Rights,
    image: Image,
    carry_out: Callable[[Change[Q, A], Q], Awaitable[A]],
) -> A:
    """Has as much of the request carried out as ``rights`` allow."""
    verdict = GUARDS[change.rpc](change, request, rights, image)
    if verdict.allowed is None:
        return cast("A", verdict.told(change.answer()))
    return cast("A", verdict.told(await carry_out(change, verdict.allowed)))


# --- kinds of guards ----------------------------------------------------------------------------


def _everything(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Verdict:
    return Verdict(request, lambda answer: answer)


def _with_the_cluster(operation: AclOperation, *, needs_authorizer: bool = False) -> Guard:
    """All or nothing. ``needs_authorizer``: without one the change would mean nothing."""

    def guard(
        change: Change[Any, Any],
        request: Any,  # noqa: ANN401 - the change's
        rights: Rights,
        image: Image,
    ) -> Verdict:
        try:
            if needs_authorizer:
                rights.require_authorizer()
            rights.require_cluster(operation)
        except KafkaError as error:
            failed = change.failed(request, error.code, error.message)
            return Verdict(None, lambda _: failed)
        return _everything(change, request, rights, image)

    return guard


def _item_by_item(
    denial: Callable[[Rights, Image, Any], Denial], *, items: Sequence[str], results: str
) -> Guard:
    """``items``: fields of the request; ``results``: field of the answer, one for each of them."""

    def guard(
        change: Change[Any, Any],
        request: Any,  # noqa: ANN401 - the change's
        rights: Rights,
        image: Image,
    ) -> Verdict:
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
        return Verdict(allowed, lambda answer: _put_between(answer, results, refused))

    return guard


def _without(
    request: Any,  # noqa: ANN401 - any change's
    fields: Sequence[str],
) -> Any:  # noqa: ANN401 - as the request
    """The request without its items. Made once: a copy for each of many items would be their
    square, and who may do nothing could keep the controller from everything else.
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
    """A request of these items, by their fields."""
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
    """``refused``: in the order of the request; None where the answer has the outcome, in order."""
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


def _doomed_topic(rights: Rights, image: Image, topic: str | bytes) -> Denial:
    """By id: an id is no secret, the name that belongs to it is."""
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
    """Kafka has no such thing: it changes the topic, and deletes what is in it."""
    return _topic(rights, AclOperation.ALTER, topic.topic) or _topic(
        rights, AclOperation.DELETE, topic.topic
    )


def _configured(
    rights: Rights, image: Image, entity: admin_pb2.ConfigChange | admin_pb2.ConfigReplacement
) -> Denial:
    """Whatever is not a topic belongs to the cluster."""
    if entity.entity_type == "topic":
        return _topic(rights, AclOperation.ALTER_CONFIGS, entity.entity_name)
    return _denial(rights.require_cluster, AclOperation.ALTER_CONFIGS)


# --- changes that are like no other -------------------------------------------------------------

_ITEMS_TO_CREATE: Final = _item_by_item(_new_topic, items=["topics"], results="topics")


def _creating_topics(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Verdict:
    """What a topic became is its configuration: shown to those who may see that (KIP-525)."""
    verdict = _ITEMS_TO_CREATE(change, request, rights, image)

    def told(answer: admin_pb2.CreateTopicsResponse) -> admin_pb2.CreateTopicsResponse:
        whole: admin_pb2.CreateTopicsResponse = verdict.told(answer)
        for topic in whole.topics:
            if not topic.error_code and not rights.may_topic(
                AclOperation.DESCRIBE_CONFIGS, topic.name, log_denied=False
            ):
                topic.num_partitions = topic.replication_factor = UNTOLD
                topic.ClearField("configs")
        return whole

    return Verdict(verdict.allowed, told)


def _altering_pipeline(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Verdict:
    """Its offsets are as those of a consumer group of its name: READ moves them, DELETE ends it."""
    deletes = request.WhichOneof("action") == "delete"
    operation = AclOperation.DELETE if deletes else AclOperation.READ
    if denied := _denial(rights.require_group, operation, request.name):
        failed = change.failed(request, *denied)
        return Verdict(None, lambda _: failed)
    return _everything(change, request, rights, image)


def _creating_token(
    change: Change[Any, Any],
    request: Any,  # noqa: ANN401 - the change's
    rights: Rights,
    image: Image,
) -> Verdict:
    """For oneself without more; for somebody else with CREATE_TOKENS on that user (KIP-373)."""
    owner = request.owner
    if (
        not owner
        or owner == str(rights.principal)
        or rights.may(AclOperation.CREATE_TOKENS, ResourceType.USER, owner)
    ):
        return _everything(change, request, rights, image)
    reason = rights.refusal(AclOperation.CREATE_TOKENS, ResourceType.USER, owner)
    failed = change.failed(request, errors_pb2.DELEGATION_TOKEN_AUTHORIZATION_FAILED, reason)
    return Verdict(None, lambda _: failed)


# --- the table ----------------------------------------------------------------------------------

_CHANGED_ENTITIES: Final = _item_by_item(_configured, items=["changes"], results="results")
_REPLACED_ENTITIES: Final = _item_by_item(_configured, items=["replacements"], results="results")

GUARDS: Final[Mapping[str, Guard]] = MappingProxyType(
    {
        changes.CREATE_TOPICS.rpc: _creating_topics,
        changes.DELETE_TOPICS.rpc: _item_by_item(
            _doomed_topic, items=["names", "topic_ids"], results="topics"
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
"""By the change's name. Producer ids are asked for by brokers, on their own listener alone; who
renews or ends a token shows that they hold it, and the token says whose it is."""
