"""DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91) and DeleteShareGroupOffsets (92): how
far share groups are, and having them begin elsewhere (KIP-932, KIP-1226)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.coordinator.share.share_questions import Answer, Summarize
from quorate.broker.coordinator.share.state.stored_state import (
    UNKNOWN_COUNT,
    UNKNOWN_START,
    SharePartitionKey,
)
from quorate.broker.kafka.connection.answer_price import AnswerPrice
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.groups.coordinator_topics import SHARES, CoordinatorTopics
from quorate.broker.kafka.groups.group_membership_apis import require_group
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.share.share_level import require_level
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicId, TopicPartition
from quorate_proto.v1 import errors_pb2

_UNKNOWN_LAG: Final = -1
_NO_ID: Final = UUID(int=0)


# -- describe --------------------------------------------------------------------------------------


async def describe_share_group_offsets(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Describe how far groups are; each has its own error code."""
    groups = []
    for group in request["groups"]:
        try:
            topics = await _described(services, context, group)
            groups.append(_group(group["group_id"], topics))
        except KafkaError as error:
            groups.append(_group(group["group_id"], (), error))
    return {"throttle_time": 0, "groups": groups}


def _group(group_id: str, topics: Sequence[Message], error: KafkaError | None = None) -> Message:
    return {
        "group_id": group_id,
        "topics": topics,
        "error_code": errors_pb2.NONE if error is None else error.code,
        "error_message": None if error is None else error.message,
    }


async def _described(
    services: KafkaServices, context: RequestContext, request: Message
) -> list[Message]:
    group_id = request["group_id"]
    require_group(services, context, AclOperation.DESCRIBE, group_id)
    group = services.groups.shard_of(group_id).share_group(group_id)
    rights = services.authorizer.rights_of(context)
    wanted: dict[str, Sequence[int]] = {}
    if request["topics"] is None:
        for topic_id, partitions in group.topics.initialized.items():
            name = services.metadata.topic_name(topic_id)
            if name is not None and rights.may_topic(AclOperation.DESCRIBE, name, log_denied=False):
                wanted[name] = sorted(partitions)
    else:
        wanted = {topic["topic_name"]: topic["partitions"] for topic in request["topics"]}
    await AnswerPrice(services, context).add(sum(map(len, wanted.values())))
    described = []
    for name, numbers in wanted.items():
        topic = services.metadata.topic(name)
        if not rights.may_topic(AclOperation.DESCRIBE, name):
            described.append(_refused(name, numbers, errors_pb2.TOPIC_AUTHORIZATION_FAILED))
        elif topic is None:
            described.append(_refused(name, numbers, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            described.append(await _topic(services, group_id, name, topic.topic_id, numbers))
    return described


def _refused(name: str, numbers: Iterable[int], code: int) -> Message:
    return {
        "topic_name": name,
        "topic_id": _NO_ID,
        "partitions": [
            _partition(number, Answer(code, error_name(code)), _UNKNOWN_LAG) for number in numbers
        ],
    }


async def _topic(
    services: KafkaServices, group_id: str, name: str, topic_id: TopicId, numbers: Sequence[int]
) -> Message:
    keys = [SharePartitionKey(group_id, topic_id, number) for number in numbers]
    answers = await services.share_states.ask_all([Summarize(key) for key in keys])
    tps = [TopicPartition(name, number) for number in numbers]
    ends = await services.share_states.end_offsets(dict(zip(tps, keys, strict=True)))
    return {
        "topic_name": name,
        "topic_id": UUID(bytes=topic_id),
        "partitions": [
            _partition(tp.partition, answer, _lag(answer, ends.get(tp)))
            for tp, answer in zip(tps, answers, strict=True)
        ],
    }


def _lag(answer: Answer, end_offset: int | None) -> int:
    """Return how many records are neither accepted nor rejected (KIP-1226)."""
    unknown = answer.start_offset == UNKNOWN_START or answer.final_records == UNKNOWN_COUNT
    if answer.error_code or unknown or end_offset is None:
        return _UNKNOWN_LAG
    return max(0, end_offset - answer.start_offset - answer.final_records)


def _partition(number: int, answer: Answer, lag: int) -> Message:
    return {
        "partition_index": number,
        "start_offset": UNKNOWN_START if answer.error_code else answer.start_offset,
        "leader_epoch": 0 if answer.error_code else max(0, answer.leader_epoch),
        "lag": lag,
        "error_code": answer.error_code,
        "error_message": answer.error_message or None,
    }


# -- alter -----------------------------------------------------------------------------------------


class AlterShareGroupOffsetsApi:
    """The handler of AlterShareGroupOffsets, with the internal topic that is being created."""

    def __init__(self) -> None:
        self._topics = CoordinatorTopics()

    async def handle(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> Message:
        """Have a group without members begin at the offsets that the request names."""
        try:
            responses = await self._altered(services, context, request)
        except KafkaError as error:
            return _failed(error)
        return {
            "throttle_time": 0,
            "error_code": errors_pb2.NONE,
            "error_message": None,
            "responses": responses,
        }

    async def _altered(
        self, services: KafkaServices, context: RequestContext, request: Message
    ) -> list[Message]:
        group_id = request["group_id"]
        _check_group(services, context, AclOperation.READ, group_id)
        rights = services.authorizer.rights_of(context)
        codes: dict[tuple[str, int], tuple[int, str]] = {}
        offsets: dict[SharePartitionKey, int] = {}
        names: dict[SharePartitionKey, tuple[str, int]] = {}
        for topic in request["topics"]:
            name = topic["topic_name"]
            known = services.metadata.topic(name)
            for partition in topic["partitions"]:
                number = partition["partition_index"]
                if not rights.may_topic(AclOperation.READ, name):
                    codes[name, number] = (errors_pb2.TOPIC_AUTHORIZATION_FAILED, "")
                elif known is None or not 0 <= number < known.partition_count:
                    codes[name, number] = (errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, "")
                else:
                    key = SharePartitionKey(group_id, known.topic_id, number)
                    offsets[key], names[key] = partition["start_offset"], (name, number)
        if offsets:
            await self._require_coordinators(services, context)
        outcomes = await services.groups.shard_of(group_id).reset_share_offsets(group_id, offsets)
        codes |= {names[key]: outcome for key, outcome in outcomes.items()}
        return [_altered_topic(services, topic, codes) for topic in request["topics"]]

    async def _require_coordinators(self, services: KafkaServices, context: RequestContext) -> None:
        require_level(services)
        missing = await self._topics.create_if_missing(services, context, SHARES)
        if missing is not None:
            raise KafkaError(errors_pb2.COORDINATOR_NOT_AVAILABLE, missing)


def _altered_topic(
    services: KafkaServices, topic: Message, codes: Mapping[tuple[str, int], tuple[int, str]]
) -> Message:
    name = topic["topic_name"]
    known = services.metadata.topic(name)
    partitions = []
    for partition in topic["partitions"]:
        number = partition["partition_index"]
        code, message = codes[name, number]
        told = message or (error_name(code) if code else None)
        partitions.append({"partition_index": number, "error_code": code, "error_message": told})
    topic_id = _NO_ID if known is None else UUID(bytes=known.topic_id)
    return {"topic_name": name, "topic_id": topic_id, "partitions": partitions}


def _failed(error: KafkaError) -> Message:
    return {
        "throttle_time": 0,
        "error_code": error.code,
        "error_message": error.message,
        "responses": [],
    }


def _check_group(
    services: KafkaServices, context: RequestContext, operation: AclOperation, group_id: str
) -> None:
    if not group_id:
        raise KafkaError(errors_pb2.INVALID_GROUP_ID, "the group id is empty")
    require_group(services, context, operation, group_id)


# -- delete ----------------------------------------------------------------------------------------


async def delete_share_group_offsets(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Have a group without members forget topics."""
    group_id = request["group_id"]
    codes: dict[str, tuple[int, str]] = {}
    ids: dict[str, TopicId] = {}
    try:
        _check_group(services, context, AclOperation.DELETE, group_id)
        rights = services.authorizer.rights_of(context)
        for topic in request["topics"]:
            name = topic["topic_name"]
            known = services.metadata.topic(name)
            if not rights.may_topic(AclOperation.READ, name):
                codes[name] = (errors_pb2.TOPIC_AUTHORIZATION_FAILED, "")
            elif known is None:
                codes[name] = (errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, "")
            else:
                ids[name] = known.topic_id
        shard = services.groups.shard_of(group_id)
        outcomes = await shard.delete_share_offsets(group_id, tuple(ids.values()))
    except KafkaError as error:
        return _failed(error)
    codes |= {name: outcomes[topic_id] for name, topic_id in ids.items()}
    return {
        "throttle_time": 0,
        "error_code": errors_pb2.NONE,
        "error_message": None,
        "responses": [
            {
                "topic_name": name,
                "topic_id": UUID(bytes=ids[name]) if name in ids else _NO_ID,
                "error_code": code,
                "error_message": message or (error_name(code) if code else None),
            }
            for name, (code, message) in codes.items()
        ],
    }
