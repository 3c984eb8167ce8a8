"""Commits offsets of a consumer group at its coordinator, and finds the coordinator.

It uses gRPC, as executors do for all their calls, because the connection, its certificates and its
password are there already. The coordinator also decides, in one step with the commit, which offsets
may go back; Kafka's own commit has no such condition. This module imports grpc: see
`quorate.spark.cluster_client`.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import grpc

from quorate.client.bootstrap import BootstrapError, format_address
from quorate.common.topic_partition import TopicPartition
from quorate.spark.call_errors import (
    COORDINATOR_MOVED,
    error_name,
    is_not_served,
    raise_if_permanent,
    reason_of,
)
from quorate.spark.cluster_client import CALL_TIMEOUT_SECONDS, ClusterClient
from quorate.spark.errors import CallRefused
from quorate.spark.options.read_options import GroupCommits
from quorate.spark.retries import RetryPolicy
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
    """The call failed, and another try may succeed."""


@dataclass(frozen=True, slots=True)
class ReachedOffset:
    """The offset up to which a partition was read.

    The topic's id distinguishes the topic from a later one of the same name.
    """

    partition: TopicPartition
    topic_id: bytes
    offset: int


class GroupOffsetCommitter:
    """Commits offsets of one group, at whichever broker coordinates it; close it."""

    def __init__(
        self,
        cluster: ClusterClient,
        commits: GroupCommits,
        retry_policy: RetryPolicy,
    ) -> None:
        self._cluster = cluster
        self._commits = commits
        self._retry_policy = retry_policy
        self._coordinator: str | None = None

    def close(self) -> None:
        """Close the connections of the cluster's client."""
        self._cluster.close()

    def check(self, partitions: Mapping[TopicPartition, bytes]) -> None:
        """Ask whether a commit of these partitions would be allowed now.

        Args:
            partitions: the id of the topic of each partition.

        Raises:
            CallRefused: the group has live members, or the user may not read it or a topic.
            ClusterUnavailable: no coordinator answered within the retries.
        """
        reached = [ReachedOffset(one, topic_id, 0) for one, topic_id in partitions.items()]
        self._call(self._request(reached, validate_only=True))

    def commit(self, reached: Iterable[ReachedOffset]) -> None:
        """Commit offsets. Log a warning for a topic that does not exist any more.

        Raises:
            CallRefused, ClusterUnavailable: as in `check`.
        """
        self._call(self._request(reached))

    def commit_part(self, reached: Iterable[ReachedOffset], part: PartOfRead) -> int:
        """Report that one part of a read is done. The coordinator commits once all parts are.

        Returns:
            The number of parts that are not done yet.

        Raises:
            CallRefused, ClusterUnavailable: as in `check`.
        """
        return self._call(self._request(reached, part=part)).parts_missing

    def _request(
        self,
        reached: Iterable[ReachedOffset],
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
        retries = self._retry_policy.new_retries()
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
        """Ask the coordinator, or any broker, which may name the coordinator to ask instead."""
        asked = self._coordinator or self._cluster.any_broker()
        response = self._ask_at(asked, request)
        named = response.coordinator
        if response.error_code in COORDINATOR_MOVED and named.port:
            self._coordinator = format_address(named.host, named.port)
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
