"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28) and OffsetDelete (47): the committed
offsets of a group.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.coordinator import OFFSET_METADATA_MAX_BYTES
from quorate.broker.coordinator.groups.state.committed_offsets import (
    CommittedOffset,
    CommittedOffsets,
)
from quorate.broker.coordinator.groups.state.group_effects import NO_GENERATION
from quorate.broker.coordinator.groups.subscriptions import consumed_topics
from quorate.broker.coordinator.shards.coordinator_records import TransactionOwner
from quorate.broker.kafka.allowed_topics import allowed_topics
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups import topics_by_id
from quorate.broker.kafka.groups.group_membership_apis import require_group
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.replication.api import TransactionSupport
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_FIRST_FETCH_OF_MANY: Final = 8
_FIRST_TXN_COMMIT_WITH_LOADING: Final = 2
_FIRST_TXN_COMMIT_WITH_ABORTABLE: Final = 4
_FIRST_TXN_COMMIT_THAT_ADDS: Final = 5
_CODE_FOR_OLD_CLIENTS: Final[Mapping[int, int]] = {
    errors_pb2.COORDINATOR_LOAD_IN_PROGRESS: errors_pb2.COORDINATOR_NOT_AVAILABLE,
}
"""The error codes for old clients. Producers before 2.3 may fail with the first code, and try
again with the second (KAFKA-7296).
"""
_FIRST_COMMIT_WITH_UNKNOWN_GROUPS: Final = 9
"""The first version of OffsetCommit that tells an unknown group from an old generation."""
_NOTHING: Final = CommittedOffset(-1)

Codes = dict[TopicPartition, int]


async def offset_commit(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """OffsetCommit (8). All offsets that may be committed are committed together. Each partition
    has an error code.
    """
    group_id, topics = request["group_id"], request["topics"]
    unknown: list[Message] = []
    if context.version >= topics_by_id.FIRST_VERSION:
        # There is no await before the append: the commits of a connection keep their order.
        named = [topics_by_id.with_name(services, topic) for topic in topics]
        topics, unknown = topics_by_id.by_knowledge(named)
    partitions = _partitions(topics)
    try:
        require_group(services, context, AclOperation.READ, group_id)
        codes = _refused_commits(services, context, partitions)
        commits = _commits(services, partitions, codes)
        shard = services.groups.shard_of(group_id)
        is_known = shard.group(group_id) is not None
        code = await shard.commit(
            group_id,
            request["member_id"],
            request.get("group_instance_id"),
            request["generation_id_or_member_epoch"],
            commits,
            knows_epochs=context.version >= _FIRST_COMMIT_WITH_UNKNOWN_GROUPS,
        )
        if code == errors_pb2.ILLEGAL_GENERATION and not is_known:
            code = _code_of_unknown_group(context.version)
        codes |= dict.fromkeys(commits, code)
    except KafkaError as error:
        codes = dict.fromkeys((tp for tp, _ in partitions), error.code)
    answers = _by_topic(topics, codes) + [_of_unknown_id(topic) for topic in unknown]
    return {"throttle_time": 0, "topics": answers}


def _code_of_unknown_group(version: int) -> int:
    """Return the code of a commit by a member of a group that does not exist."""
    if version < _FIRST_COMMIT_WITH_UNKNOWN_GROUPS:
        return errors_pb2.ILLEGAL_GENERATION
    return errors_pb2.GROUP_ID_NOT_FOUND


def _of_unknown_id(topic: Message) -> Message:
    """Return the result of a commit to a topic whose id is not known."""
    partitions = [
        {"partition_index": each["partition_index"], "error_code": errors_pb2.UNKNOWN_TOPIC_ID}
        for each in topic["partitions"]
    ]
    return {"topic_id": topic["topic_id"], "partitions": partitions}


async def txn_offset_commit(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """TxnOffsetCommit (28): commit offsets as a part of a transaction (KIP-98, KIP-447)."""
    group_id, topics = request["group_id"], request["topics"]
    partitions = _partitions(topics)
    try:
        rights = services.authorizer.rights_of(context)
        rights.require_transactional_id(AclOperation.WRITE, request["transactional_id"])
        rights.require_group(AclOperation.READ, group_id)
        codes = _refused_commits(services, context, partitions)
        commits = _commits(services, partitions, codes)
        owner = TransactionOwner(
            request["transactional_id"],
            request["producer_id"],
            request["producer_epoch"],
            _support(context.version),
        )
        code = await services.groups.shard_of(group_id).commit_in_transaction(
            group_id,
            owner,
            request.get("member_id", ""),
            request.get("group_instance_id"),
            request.get("generation_id", NO_GENERATION),
            commits,
        )
        codes |= dict.fromkeys(commits, code)
    except KafkaError as error:
        codes = dict.fromkeys((tp for tp, _ in partitions), error.code)
    if context.version < _FIRST_TXN_COMMIT_WITH_LOADING:
        codes = {tp: _CODE_FOR_OLD_CLIENTS.get(code, code) for tp, code in codes.items()}
    values = {"throttle_time": 0, "topics": _by_topic(topics, codes)}
    return values


def _support(version: int) -> TransactionSupport:
    """Return what a version of TxnOffsetCommit says of its client's transactions (KIP-890)."""
    if version >= _FIRST_TXN_COMMIT_THAT_ADDS:
        return TransactionSupport.ADDED
    if version >= _FIRST_TXN_COMMIT_WITH_ABORTABLE:
        return TransactionSupport.ABORTABLE
    return TransactionSupport.ANNOUNCED


def _partitions(topics: Iterable[Message]) -> list[tuple[TopicPartition, Message]]:
    return [
        (TopicPartition(topic["name"], partition["partition_index"]), partition)
        for topic in topics
        for partition in topic["partitions"]
    ]


def _commits(
    services: KafkaServices,
    partitions: Iterable[tuple[TopicPartition, Message]],
    refused: Codes,
) -> dict[TopicPartition, CommittedOffset]:
    now_ms = services.wall_clock_ms()
    return {
        tp: CommittedOffset(
            each["committed_offset"],
            each.get("committed_leader_epoch", -1),
            each["committed_metadata"] or "",
            now_ms,
        )
        for tp, each in partitions
        if tp not in refused
    }


def _refused_commits(
    services: KafkaServices,
    context: RequestContext,
    partitions: Iterable[tuple[TopicPartition, Message]],
) -> Codes:
    """Return the error codes of the commits that are refused, because the client may not read
    the topic, the partition does not exist, or the metadata text is too large.
    """
    partitions = list(partitions)
    rights = services.authorizer.rights_of(context)
    readable = rights.topics(AclOperation.READ, (tp.topic for tp, _ in partitions))
    metadata_bytes_max = services.config[OFFSET_METADATA_MAX_BYTES]
    refused: Codes = {}
    for tp, each in partitions:
        if tp.topic not in readable:
            refused[tp] = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        elif not _exists(services, tp):
            refused[tp] = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        elif len((each["committed_metadata"] or "").encode()) > metadata_bytes_max:
            refused[tp] = errors_pb2.OFFSET_METADATA_TOO_LARGE
    return refused


def _exists(services: KafkaServices, tp: TopicPartition) -> bool:
    topic = services.metadata.topics.get(tp.topic)
    return topic is not None and 0 <= tp.partition < len(topic.partitions)


async def offset_fetch(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """OffsetFetch (9): return committed offsets. The offset is -1 if nothing is committed."""
    stable: bool = request.get("require_stable", False)
    price = AnswerPrice(services, context)
    if context.version < _FIRST_FETCH_OF_MANY:
        return {"throttle_time": 0, **await _fetch(services, context, request, price, stable)}
    asked: dict[str, Message] = {}
    for each in request["groups"]:
        # The offsets of a group may be many, so they are answered once (issue 17).
        asked.setdefault(each["group_id"], each)
    groups = []
    async for group_id, each in services.turns.through(asked.items()):
        found = await _fetch(services, context, each, price, stable)
        groups.append({"group_id": group_id, **found})
    return {"throttle_time": 0, "groups": groups}


async def _fetch(
    services: KafkaServices,
    context: RequestContext,
    group_request: Message,
    price: AnswerPrice,
    stable: bool,
) -> Message:
    """Return the committed offsets of one group, for the named topics. If no topics are given
    (None), return all offsets that the client may see.

    With ``stable``, offsets that an open transaction may change are refused (KIP-447).
    """
    group_id, topics = group_request["group_id"], group_request["topics"]
    code: int = errors_pb2.NONE
    committed = CommittedOffsets()
    try:
        require_group(services, context, AclOperation.DESCRIBE, group_id)
        shard = services.groups.shard_of(group_id)
        code = shard.check_fetch(
            group_id, group_request.get("member_id"), group_request.get("member_epoch", -1)
        )
        committed = shard.offsets(group_id)
    except KafkaError as error:
        code = error.code
    topics, unknown, visible = await _topics_to_fetch(services, context, committed, topics)
    await price.add(sum(len(each["partition_indexes"]) for each in (*topics, *unknown)))
    unstable = frozenset(committed.pending) if stable else frozenset()

    def code_of(tp: TopicPartition) -> int:
        if code:
            return code
        if tp.topic not in visible:
            return errors_pb2.TOPIC_AUTHORIZATION_FAILED
        return errors_pb2.UNSTABLE_OFFSET_COMMIT if tp in unstable else errors_pb2.NONE

    def fetched(tp: TopicPartition) -> Message:
        return _fetched(committed.get(tp), tp.partition, code_of(tp))

    answers: list[Message] = []
    async for topic in services.turns.through(topics):
        name = topic["name"]
        partitions = [
            fetched(TopicPartition(name, partition))
            async for partition in services.turns.through(topic["partition_indexes"])
        ]
        answers.append({"name": name, "topic_id": topic.get("topic_id"), "partitions": partitions})
    async for topic in services.turns.through(unknown):
        code_of_id = code or errors_pb2.UNKNOWN_TOPIC_ID
        partitions = [
            _fetched(None, partition, code_of_id)
            async for partition in services.turns.through(topic["partition_indexes"])
        ]
        answers.append({"topic_id": topic["topic_id"], "partitions": partitions})
    return {"error_code": code, "topics": answers}


class _AskedTopics(NamedTuple):
    """The topics whose offsets are asked for. Offsets of those not in ``visible`` are not told."""

    known: list[Message]
    unknown: list[Message]
    """Those whose ids are not known."""
    visible: Set[str]


async def _topics_to_fetch(
    services: KafkaServices,
    context: RequestContext,
    committed: CommittedOffsets,
    topics: list[Message] | None,
) -> _AskedTopics:
    """Return the named topics, or all with committed offsets that the client may see (None)."""
    rights = services.authorizer.rights_of(context)
    by_id = context.version >= topics_by_id.FIRST_VERSION
    if topics is None:
        known = await _all_topics(services, committed)
        if by_id:
            known = topics_by_id.with_ids(services, known)
        names = [each["name"] for each in known]
        visible = await allowed_topics(
            services, rights, AclOperation.DESCRIBE, names, log_denied=False
        )
        return _AskedTopics([each for each in known if each["name"] in visible], [], visible)
    unknown: list[Message] = []
    if by_id:
        turns = services.turns
        named = [topics_by_id.with_name(services, topic) async for topic in turns.through(topics)]
        topics, unknown = topics_by_id.by_knowledge(named)
    names = [each["name"] for each in topics]
    visible = await allowed_topics(services, rights, AclOperation.DESCRIBE, names)
    return _AskedTopics(topics, unknown, visible)


async def _all_topics(services: KafkaServices, committed: CommittedOffsets) -> list[Message]:
    partitions: dict[str, list[int]] = {}
    async for tp in services.turns.through(tuple(committed)):
        partitions.setdefault(tp.topic, []).append(tp.partition)
    return [{"name": name, "partition_indexes": indexes} for name, indexes in partitions.items()]


def _fetched(found: CommittedOffset | None, partition: int, error_code: int) -> Message:
    commit = _NOTHING if found is None or error_code else found
    return {
        "partition_index": partition,
        "committed_offset": commit.offset,
        "committed_leader_epoch": commit.leader_epoch,
        "metadata": commit.metadata,
        "error_code": error_code,
    }


async def offset_delete(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """OffsetDelete (47): delete committed offsets. Offsets of topics that members consume are
    not deleted (KIP-496).
    """
    group_id, topics = request["group_id"], request["topics"]
    tps = [
        TopicPartition(topic["name"], partition["partition_index"])
        for topic in topics
        for partition in topic["partitions"]
    ]
    values: Message = {"throttle_time": 0, "error_code": errors_pb2.NONE, "topics": []}
    try:
        require_group(services, context, AclOperation.DELETE, group_id)
        shard = services.groups.shard_of(group_id)
        codes = _refused_deletions(services, context, tps)
        group = shard.group(group_id)
        consumed = frozenset[str]() if group is None else consumed_topics(group)
        if group is not None and len(group.members) and consumed is None:
            raise KafkaError(
                errors_pb2.NON_EMPTY_GROUP,
                f"group {group_id!r} has members, and what they consume is not known here",
            )
        codes |= {
            tp: errors_pb2.GROUP_SUBSCRIBED_TO_TOPIC
            for tp in tps
            if tp.topic in (consumed or ()) and tp not in codes
        }
        allowed = [tp for tp in tps if tp not in codes]
        code = await shard.forget_offsets(group_id, allowed) if allowed else errors_pb2.NONE
        if code:
            raise KafkaError(code, f"offsets of group {group_id!r} were not deleted")
        values["topics"] = _by_topic(topics, dict.fromkeys(tps, errors_pb2.NONE) | codes)
    except KafkaError as error:
        values["error_code"] = error.code
    return values


def _refused_deletions(
    services: KafkaServices, context: RequestContext, tps: Iterable[TopicPartition]
) -> Codes:
    tps = list(tps)
    readable = services.authorizer.rights_of(context).topics(
        AclOperation.READ, (tp.topic for tp in tps)
    )
    return {tp: errors_pb2.TOPIC_AUTHORIZATION_FAILED for tp in tps if tp.topic not in readable}


def _by_topic(topics: Iterable[Message], codes: Mapping[TopicPartition, int]) -> list[Message]:
    return [
        {
            "name": topic["name"],
            "topic_id": topic.get("topic_id"),
            "partitions": [
                {
                    "partition_index": each["partition_index"],
                    "error_code": codes[TopicPartition(topic["name"], each["partition_index"])],
                }
                for each in topic["partitions"]
            ],
        }
        for topic in topics
    ]
