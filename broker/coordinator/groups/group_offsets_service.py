"""``GroupOffsets``: the gRPC service through which Spark commits offsets for a group.

It uses gRPC because executors already have such a connection with its certificates and passwords,
and because Kafka's protocol has no conditional commit.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import grpc
import grpc.aio

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.internal_topics import OFFSETS_TOPIC, partition_of
from quorate.broker.coordinator.groups.external_commits import NOWHERE, ExternalCommits, ReadId
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.security.authorizer import Rights
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate.metadata_log.codec import encode_endpoint
from quorate_proto.v1 import errors_pb2, groups_pb2, groups_pb2_grpc

Context = grpc.aio.ServicerContext[
    groups_pb2.CommitOffsetsRequest, groups_pb2.CommitOffsetsResponse
]
Refusals = Mapping[TopicPartition, KafkaError]

_LOOK_ELSEWHERE: Final = frozenset(
    {errors_pb2.NOT_COORDINATOR, errors_pb2.COORDINATOR_NOT_AVAILABLE}
)


class GroupOffsetsService(groups_pb2_grpc.GroupOffsetsServicer):
    """Serves commits from outside a group."""

    def __init__(
        self,
        commits: ExternalCommits,
        metadata: MetadataCache,
        rights: Callable[[], Rights],
        create_if_missing: Callable[[], Awaitable[str | None]],
    ) -> None:
        """``rights`` returns the rights of the client whose call is being served.

        ``create_if_missing`` creates the topic of the group coordinators if it is absent, like
        ``CoordinatorTopics.create_if_missing``.
        """
        self._commits = commits
        self._metadata = metadata
        self._rights = rights
        self._create_if_missing = create_if_missing

    async def CommitOffsets(
        self, request: groups_pb2.CommitOffsetsRequest, context: Context
    ) -> groups_pb2.CommitOffsetsResponse:
        """Commit offsets for a group, as the service definition describes."""
        rights = self._rights()
        try:
            _require_reader(rights, request.group_id)
            refusals = self._refusals(rights, request.offsets)
            return await self._carry_out(request, refusals)
        except KafkaError as error:
            response = groups_pb2.CommitOffsetsResponse(
                error_code=error.code, error_message=error.message
            )
            if error.code in _LOOK_ELSEWHERE:
                self._tell_coordinator(request.group_id, response)
            return response

    async def _carry_out(
        self, request: groups_pb2.CommitOffsetsRequest, refusals: Refusals
    ) -> groups_pb2.CommitOffsetsResponse:
        reason = await self._create_if_missing()
        if reason is not None:
            raise KafkaError(errors_pb2.COORDINATOR_NOT_AVAILABLE, reason)
        group_id = request.group_id
        offsets = {
            tp: each.offset for each in request.offsets if (tp := _partition(each)) not in refusals
        }
        before: Mapping[TopicPartition, int] = {}
        missing = 0
        if request.validate_only:
            self._commits.check(group_id)
        elif request.HasField("part"):
            part = request.part
            missing = await self._commits.commit_part(
                ReadId(group_id, part.read_id),
                part.number,
                part.count,
                offsets,
                may_go_back=request.may_go_back,
            )
        else:
            before = await self._commits.commit(group_id, offsets, may_go_back=request.may_go_back)
        response = groups_pb2.CommitOffsetsResponse(parts_missing=missing)
        for each in request.offsets:
            tp = _partition(each)
            refusal = refusals.get(tp)
            response.outcomes.add(
                error_code=errors_pb2.NONE if refusal is None else refusal.code,
                error_message="" if refusal is None else refusal.message,
                committed_offset=before.get(tp, NOWHERE),
            )
        return response

    def _refusals(self, rights: Rights, offsets: Iterable[groups_pb2.GroupOffset]) -> Refusals:
        """Return the refused partitions: those the caller may not read, and those that do not
        exist."""
        offsets = list(offsets)
        readable = rights.topics(AclOperation.READ, (each.topic for each in offsets))
        refusals: dict[TopicPartition, KafkaError] = {}
        seen: set[TopicPartition] = set()
        for each in offsets:
            tp = _partition(each)
            if tp in seen or each.offset < 0:
                raise KafkaError(
                    errors_pb2.INVALID_REQUEST,
                    f"offset {each.offset} of {tp}: one offset, from 0 on, for each partition",
                )
            seen.add(tp)
            if each.topic not in readable:
                denied = rights.refusal(AclOperation.READ, ResourceType.TOPIC, each.topic)
                refusals[tp] = KafkaError(errors_pb2.TOPIC_AUTHORIZATION_FAILED, denied)
            elif (reason := self._why_not_there(each)) is not None:
                refusals[tp] = KafkaError(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, reason)
        return refusals

    def _why_not_there(self, wanted: groups_pb2.GroupOffset) -> str | None:
        tp = _partition(wanted)
        topic = self._metadata.topics.get(wanted.topic)
        if topic is None or not 0 <= wanted.partition < len(topic.partitions):
            return f"{tp} does not exist"
        if wanted.topic_id and wanted.topic_id != topic.topic_id:
            return f"{tp} is not of topic id {wanted.topic_id.hex()}: the topic was re-created"
        return None

    def _tell_coordinator(self, group_id: str, response: groups_pb2.CommitOffsetsResponse) -> None:
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
        broker = self._metadata.brokers.get(leader)
        if broker is not None:
            response.coordinator.CopyFrom(encode_endpoint(broker.grpc))


def _partition(named: groups_pb2.GroupOffset) -> TopicPartition:
    return TopicPartition(named.topic, named.partition)


def _require_reader(rights: Rights, group_id: str) -> None:
    if not group_id:
        raise KafkaError(errors_pb2.INVALID_GROUP_ID, "a group needs a name")
    if not rights.may_group(AclOperation.READ, group_id):
        raise KafkaError(
            errors_pb2.GROUP_AUTHORIZATION_FAILED,
            rights.refusal(AclOperation.READ, ResourceType.GROUP, group_id),
        )
