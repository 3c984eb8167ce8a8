"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28), OffsetDelete (47): a group's place."""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.config.coordinator import OFFSET_METADATA_MAX_BYTES
from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.groups.effects import NO_GENERATION
from broker.coordinator.groups.offsets import CommittedOffsets
from broker.coordinator.groups.subscription import consumed_topics
from broker.coordinator.log_entries import TransactionOwner
from broker.errors import KafkaError
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.group_membership import require_group
from broker.kafka.requests import Buffers, RequestContext
from broker.kafka.services import KafkaServices
from metadata_log.acls import AclOperation
from metadata_log.types import TopicPartition
from quorate_proto.v1 import errors_pb2

_FIRST_FETCH_OF_MANY: Final = 8
_FIRST_TXN_COMMIT_TOLD_OF_LOADING: Final = 2
_CODE_OF_OLD: Final[Mapping[int, int]] = {
    errors_pb2.COORDINATOR_LOAD_IN_PROGRESS: errors_pb2.COORDINATOR_NOT_AVAILABLE,
}
"""Producers before 2.3 may end at the former, and ask again at the latter (KAFKA-7296)."""
_NOTHING: Final = CommittedOffset(-1)

Codes = dict[TopicPartition, int]


async def offset_commit(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    """All that may be committed is, together; an error code for each partition."""
    group_id, topics = request["group_id"], request["topics"]
    partitions = _partitions(topics)
    try:
        require_group(services, context, AclOperation.READ, group_id)
        codes = _refused_commits(services, context, partitions)
        commits = _commits(services, partitions, codes)
        code = await services.groups.shard_of(group_id).commit(
            group_id,
            request["member_id"],
            request.get("group_instance_id"),
            request["generation_id_or_member_epoch"],
            commits,
        )
        codes |= dict.fromkeys(commits, code)
    except KafkaError as error:
        codes = dict.fromkeys((tp for tp, _ in partitions), error.code)
    values = {"throttle_time": 0, "topics": _by_topic(topics, codes)}
    return [codec.encode_response("offset_commit", context.version, values)]


async def txn_offset_commit(
    services: KafkaServices, context: RequestContext, request: Message
) -> Buffers:
    """As ``offset_commit``, as part of a transaction (KIP-98, KIP-447)."""
    group_id, topics = request["group_id"], request["topics"]
    partitions = _partitions(topics)
    try:
        rights = services.authorizer.rights_of(context)
        rights.require_transactional_id(AclOperation.WRITE, request["transactional_id"])
        rights.require_group(AclOperation.READ, group_id)
        codes = _refused_commits(services, context, partitions)
        commits = _commits(services, partitions, codes)
        owner = TransactionOwner(
            request["transactional_id"], request["producer_id"], request["producer_epoch"]
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
    if context.version < _FIRST_TXN_COMMIT_TOLD_OF_LOADING:
        codes = {tp: _CODE_OF_OLD.get(code, code) for tp, code in codes.items()}
    values = {"throttle_time": 0, "topics": _by_topic(topics, codes)}
    return [codec.encode_response("txn_offset_commit", context.version, values)]


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
    """Those of topics that the client may not read or that do not exist, or that say too much."""
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
) -> Buffers:
    """OffsetFetch (9): -1 where nothing is committed."""
    stable: bool = request.get("require_stable", False)
    if context.version >= _FIRST_FETCH_OF_MANY:
        groups = [
            {"group_id": each["group_id"], **_fetch(services, context, each, stable=stable)}
            for each in request["groups"]
        ]
        values: Message = {"throttle_time": 0, "groups": groups}
    else:
        values = {"throttle_time": 0, **_fetch(services, context, request, stable=stable)}
    return [codec.encode_response("offset_fetch", context.version, values)]


def _fetch(
    services: KafkaServices, context: RequestContext, asked: Message, *, stable: bool
) -> Message:
    """What one group has committed: of the topics named, or (None) of all that may be seen.

    ``stable``: nothing of what a transaction may be about to change (KIP-447).
    """
    group_id, topics = asked["group_id"], asked["topics"]
    rights = services.authorizer.rights_of(context)
    code: int = errors_pb2.NONE
    committed = CommittedOffsets()
    try:
        require_group(services, context, AclOperation.DESCRIBE, group_id)
        committed = services.groups.shard_of(group_id).offsets(group_id)
    except KafkaError as error:
        code = error.code
    if topics is None:
        topics = _all_topics(committed)
        visible = rights.topics(
            AclOperation.DESCRIBE, (each["name"] for each in topics), log_denied=False
        )
        topics = [each for each in topics if each["name"] in visible]
    else:
        visible = rights.topics(AclOperation.DESCRIBE, (each["name"] for each in topics))
    unstable = frozenset(committed.pending) if stable else frozenset()

    def code_of(tp: TopicPartition) -> int:
        if code:
            return code
        if tp.topic not in visible:
            return errors_pb2.TOPIC_AUTHORIZATION_FAILED
        return errors_pb2.UNSTABLE_OFFSET_COMMIT if tp in unstable else errors_pb2.NONE

    def fetched(tp: TopicPartition) -> Message:
        return _fetched(committed.get(tp), tp.partition, code_of(tp))

    return {
        "error_code": code,
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    fetched(TopicPartition(topic["name"], partition))
                    for partition in topic["partition_indexes"]
                ],
            }
            for topic in topics
        ],
    }


def _all_topics(committed: CommittedOffsets) -> list[Message]:
    partitions: dict[str, list[int]] = {}
    for tp in committed:
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
) -> Buffers:
    """Offsets of topics that members consume stay (KIP-496)."""
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
    return [codec.encode_response("offset_delete", context.version, values)]


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
