"""Asking the coordinator of a consumer group to commit, wherever it is.

Over gRPC, as everything that executors ask: the connection, its certificates and its password are
there. And the coordinator decides what goes back, in one step with the commit; Kafka's own commit
has no condition. grpc is imported by this module: see `quorate.spark.cluster`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import grpc

from quorate.client.bootstrap import BootstrapError, format_address
from quorate.spark.call_errors import (
    COORDINATOR_MOVED,
    error_name,
    is_not_served,
    raise_if_permanent,
    reason_of,
)
from quorate.spark.cluster import CALL_TIMEOUT_SECONDS, ClusterClient
from quorate.spark.errors import CallRefused
from quorate.spark.options.group_commits import GroupCommits
from quorate.spark.ranges import TopicPartition
from quorate.spark.retries import Retries
from quorate_proto.v1.errors_pb2 import NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION
from quorate_proto.v1.groups_pb2 import (
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    GroupOffset,
    PartOfRead,
)
from quorate_proto.v1.groups_pb2_grpc import GroupOffsetsStub

_logger = logging.getLogger(__name__)


class _TryAgain(Exception):
    """Another try may be answered."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a partition was read; the topic's id tells it from a later one of its name."""

    partition: TopicPartition
    topic_id: bytes
    offset: int


class GroupOffsets:
    """One group's offsets, by whoever coordinates it."""

    def __init__(
        self,
        cluster: ClusterClient,
        commits: GroupCommits,
        new_retries: Callable[[], Retries],
    ) -> None:
        self._cluster = cluster
        self._commits = commits
        self._new_retries = new_retries
        self._coordinator: str | None = None

    def check(self, partitions: Mapping[TopicPartition, bytes]) -> None:
        """Whether a commit of these partitions (with their topics' ids) would be allowed now.

        Raises:
            CallRefused: the group has live members, or we may not read it or a topic.
            ClusterUnavailable: no coordinator answered within the retries.
        """
        reached = [Reached(one, topic_id, 0) for one, topic_id in partitions.items()]
        self._call(self._request(reached, validate_only=True))

    def commit(self, reached: Iterable[Reached]) -> None:
        """Commit; of a topic that is gone there is a warning.

        Raises:
            CallRefused, ClusterUnavailable: as `check`.
        """
        self._call(self._request(reached))

    def commit_part(self, reached: Iterable[Reached], part: PartOfRead) -> int:
        """A part of a read was read: committed are all once the last one was. Missing parts.

        Raises:
            CallRefused, ClusterUnavailable: as `check`.
        """
        return self._call(self._request(reached, part=part)).parts_missing

    def _request(
        self,
        reached: Iterable[Reached],
        *,
        validate_only: bool = False,
        part: PartOfRead | None = None,
    ) -> CommitOffsetsRequest:
        return CommitOffsetsRequest(
            group_id=self._commits.group_id,
            offsets=[
                GroupOffset(
                    topic=one.partition.topic,
                    topic_id=one.topic_id,
                    partition=one.partition.partition,
                    offset=one.offset,
                )
                for one in reached
            ],
            may_go_back=self._commits.may_go_back,
            validate_only=validate_only,
            part=part,
        )

    def _call(self, request: CommitOffsetsRequest) -> CommitOffsetsResponse:
        retries = self._new_retries()
        while True:
            try:
                return self._settled(self._ask(request), request)
            except (_TryAgain, BootstrapError, grpc.RpcError) as error:
                raise_if_permanent(error)
                if isinstance(error, grpc.RpcError):
                    self._coordinator = None
                    self._cluster.leave_broker()
                retries.pause(f"committing offsets of group {request.group_id}", reason_of(error))

    def _ask(self, request: CommitOffsetsRequest) -> CommitOffsetsResponse:
        """The answer of the coordinator, or of the one who is not and knows no better."""
        asked = self._coordinator or self._cluster.any_broker()
        response = self._ask_at(asked, request)
        told = response.coordinator
        if response.error_code in COORDINATOR_MOVED and told.port:
            self._coordinator = format_address(told.host, told.port)
            if self._coordinator != asked:
                response = self._ask_at(self._coordinator, request)
        return response

    def _ask_at(self, address: str, request: CommitOffsetsRequest) -> CommitOffsetsResponse:
        stub = GroupOffsetsStub(self._cluster.channel(address))
        try:
            return stub.CommitOffsets(request, timeout=CALL_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            if is_not_served(error):
                raise CallRefused(
                    f"option commitGroup: the broker at {address} is too old for it: upgrade the "
                    "cluster, or leave the option out"
                ) from error
            raise

    def _settled(
        self, response: CommitOffsetsResponse, request: CommitOffsetsRequest
    ) -> CommitOffsetsResponse:
        code, message = response.error_code, response.error_message
        if code in COORDINATOR_MOVED:
            raise _TryAgain(f"{error_name(code)}: {message}")
        if code == NON_EMPTY_GROUP:
            raise CallRefused(f"option commitGroup: {message}")
        if code:
            raise self._refused(code, message)
        for outcome in response.outcomes:
            if outcome.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                _logger.warning(
                    "group %s: %s; its offset is not committed",
                    request.group_id,
                    outcome.error_message,
                )
            elif outcome.error_code:
                raise self._refused(outcome.error_code, outcome.error_message)
        return response

    def _refused(self, code: int, message: str) -> CallRefused:
        return CallRefused(
            f"option commitGroup: committing offsets of group {self._commits.group_id} was "
            f"refused: {error_name(code)}: {message}"
        )
