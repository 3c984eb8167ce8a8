"""The gRPC client of a cluster: topics and their leaders, offsets, and ranges of records.

It starts from Kafka's ``bootstrap.servers``. Every call survives the ordinary events of a cluster,
such as a leader that moves or a broker that goes away. This module imports grpc, so import it only
in the process that calls: Spark forks its workers, and gRPC does not survive a fork.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

import grpc

from quorate.client.auto_create_request import ask_for_topic
from quorate.client.bootstrap import BootstrapError, discover, format_address
from quorate.client.security import Securities
from quorate.common.topic_partition import TopicPartition
from quorate.spark.call_errors import RETRIABLE, error_name, raise_if_permanent, reason_of
from quorate.spark.offset_ranges import DescribedTopic, OffsetQuestion
from quorate.spark.retries import RetryPolicy
from quorate_proto.v1.replication_pb2 import (
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    ListOffsetsRequest,
    OffsetAnswer,
    OffsetQuery,
    RangeReadRequest,
)
from quorate_proto.v1.replication_pb2_grpc import RangeReadStub

T = TypeVar("T")

CALL_TIMEOUT_SECONDS = 10.0
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""The isolation levels, as Kafka numbers them."""
READ_METHOD = "/quorate.v1.RangeRead/Read"
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # Brokers are peers, not web pages, so a proxy of the environment must not be used.
    ("grpc.enable_http_proxy", 0),
    # A broker that restarts must be found again within the retries, not after gRPC's minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class FrameCall(Protocol):
    """A running gRPC call and the raw frames that it receives."""

    def __iter__(self) -> Iterator[bytes]: ...
    def cancel(self) -> bool: ...


class ClusterClient:
    """A client of one cluster; close it, or use it as a context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        retry_policy: RetryPolicy,
        security: Securities = Securities(),  # noqa: B008 - frozen
        *,
        committed_only: bool = True,
    ) -> None:
        """
        Args:
            bootstrap_servers: Kafka's addresses, with commas between.
            retry_policy: the budget of tries of each call.
            security: how the client proves its identity, and which brokers it trusts.
            committed_only: topics end at their first open transaction, and frames name the aborted
                transactions.
        """
        self.isolation_level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        self._security = security
        self._bootstrap_servers = bootstrap_servers
        self._retry_policy = retry_policy
        self._addresses: list[str] = []
        self._channels: dict[str, grpc.Channel] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._topics: dict[str, DescribedTopic] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Open streams fail."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def describe_topics(
        self, topics: Sequence[str] = (), *, every: bool = False
    ) -> DescribeTopicsResponse:
        """Describe topics by name, or every topic, by asking any broker. Remember the leaders.

        Raises:
            ClusterUnavailable: no broker answered within the retries.
        """
        request = DescribeTopicsRequest(topics=topics, all=every)
        retries = self._retry_policy.new_retries()
        while True:
            try:
                return self._describe_once(request)
            except (BootstrapError, grpc.RpcError) as error:
                self._addresses.clear()
                raise_if_permanent(error)
                retries.pause(f"describing topics at {self._bootstrap_servers}", reason_of(error))

    def ask_any(self, attempt: str, ask: Callable[[grpc.Channel], T]) -> T:
        """Return the answer of the first broker that gives one.

        Args:
            attempt: what is asked for, for the message.
            ask: makes the call on a broker's channel.

        Raises:
            ClusterUnavailable: no broker answered within the retries.
        """
        retries = self._retry_policy.new_retries()
        while True:
            try:
                if not self._addresses:
                    self._addresses = self._discover()
                return ask(self.channel(self._addresses[0]))
            except (BootstrapError, grpc.RpcError) as error:
                raise_if_permanent(error)
                self.leave_broker()
                if not self._addresses:
                    retries.pause(f"{attempt} at {self._bootstrap_servers}", reason_of(error))

    def leave_broker(self) -> None:
        """Ask another broker the next time. Once all were left, look for brokers again."""
        del self._addresses[:1]

    def list_offsets(
        self, questions: Iterable[OffsetQuestion]
    ) -> dict[OffsetQuestion, OffsetAnswer]:
        """Ask the leaders for offsets, with one call to each. No answer has a retriable error.

        Raises:
            ClusterUnavailable: a leader did not answer within the retries.
        """
        pending = list(dict.fromkeys(questions))
        answers: dict[OffsetQuestion, OffsetAnswer] = {}
        retries = self._retry_policy.new_retries()
        while True:
            failures = self._ask_leaders(pending, answers)
            pending = [question for question in pending if question not in answers]
            if not pending:
                return answers
            partition, reason = next(iter(failures.items()))
            retries.pause(f"listing offsets of {partition}", reason)
            self.refresh(question.topic_partition for question in pending)

    def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask again who leads these partitions."""
        self.describe_topics(sorted({partition.topic for partition in partitions}))

    def leader_of(self, partition: TopicPartition) -> str | None:
        """Return the gRPC address of the leader as last heard; None if there is no leader."""
        return self._leaders.get(partition)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of the topic of that name as last heard; None if there is no such topic."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def exists(self, partition: TopicPartition) -> bool:
        """Return True if the cluster has the partition, as last heard."""
        known = self._topics.get(partition.topic)
        return known is not None and partition.partition < known.partitions

    def ask_for_topic(self, topic: str) -> int:
        """Request the creation of a topic, as Kafka's clients do; return the Kafka error code.

        Raises:
            BootstrapError: no bootstrap server answered.
        """
        return ask_for_topic(self._bootstrap_servers, topic, self._security.kafka)

    def any_broker(self) -> str:
        """Return the gRPC address of a broker: the one that answered last, if any did.

        Raises:
            ClusterUnavailable: no broker answered within the retries.
        """
        if not self._addresses:
            self.describe_topics()
        return self._addresses[0]

    def open_range(self, leader: str, request: RangeReadRequest) -> FrameCall:
        """Start ``RangeRead.Read`` at a leader, and return its raw frames; cancel it when done."""
        read: Callable[[RangeReadRequest], FrameCall] = self.channel(leader).unary_stream(
            READ_METHOD, request_serializer=RangeReadRequest.SerializeToString
        )
        return read(request)

    def _describe_once(self, request: DescribeTopicsRequest) -> DescribeTopicsResponse:
        if not self._addresses:
            self._addresses = self._discover()
        partial: DescribeTopicsResponse | None = None
        failure: grpc.RpcError | None = None
        for address in list(self._addresses):
            try:
                response = RangeReadStub(self.channel(address)).DescribeTopics(
                    request, timeout=CALL_TIMEOUT_SECONDS
                )
            except grpc.RpcError as error:
                raise_if_permanent(error)
                failure = error
                continue
            self._remember(response, address)
            if is_complete(response):
                return response
            partial = response
        if partial is not None:
            return partial
        raise failure or BootstrapError("no broker told its gRPC endpoint")

    def _discover(self) -> list[str]:
        brokers = discover(self._bootstrap_servers, security=self._security.kafka).brokers
        addresses = [broker.grpc for broker in brokers if broker.grpc]
        if not addresses:
            raise BootstrapError(
                f"none of the {len(brokers)} brokers behind {self._bootstrap_servers} told its "
                "gRPC endpoint: is this a Quorate cluster?"
            )
        return addresses

    def _remember(self, response: DescribeTopicsResponse, responder: str) -> None:
        address_by_id = {
            broker.broker_id: format_address(broker.grpc.host, broker.grpc.port)
            for broker in response.brokers
        }
        others = [a for a in address_by_id.values() or self._addresses if a != responder]
        # The broker that answered is asked first the next time, not one that hangs.
        self._addresses = [responder, *others]
        for topic in response.topics:
            self._topics.pop(topic.topic, None)
            if not topic.error_code:
                self._topics[topic.topic] = DescribedTopic(topic.topic_id, len(topic.partitions))
            for described in topic.partitions:
                partition = TopicPartition(topic.topic, described.partition)
                self._leaders.pop(partition, None)
                if (address := address_by_id.get(described.leader)) is not None:
                    self._leaders[partition] = address

    def _ask_leaders(
        self,
        questions: Sequence[OffsetQuestion],
        answers: dict[OffsetQuestion, OffsetAnswer],
    ) -> Mapping[TopicPartition, str]:
        """Fill in the answers of the leaders; return why the other questions are still open."""
        failures: dict[TopicPartition, str] = {}
        by_leader: dict[str, list[OffsetQuestion]] = {}
        for question in questions:
            leader = self.leader_of(question.topic_partition)
            if leader is None:
                failures[question.topic_partition] = "the partition has no leader"
            else:
                by_leader.setdefault(leader, []).append(question)
        for leader, asked in by_leader.items():
            try:
                found = self._list_offsets_once(leader, asked)
            except grpc.RpcError as error:
                raise_if_permanent(error)
                failures.update({q.topic_partition: f"{leader}: {reason_of(error)}" for q in asked})
                continue
            for question, answer in zip(asked, found, strict=True):
                if answer.error_code in RETRIABLE:
                    failures[question.topic_partition] = (
                        f"{leader}: {error_name(answer.error_code)}"
                    )
                else:
                    answers[question] = answer
        return failures

    def _list_offsets_once(
        self, leader: str, questions: Sequence[OffsetQuestion]
    ) -> Sequence[OffsetAnswer]:
        queries = [
            OffsetQuery(topic=partition.topic, partition=partition.partition, timestamp_ms=time_ms)
            for partition, time_ms in questions
        ]
        response = RangeReadStub(self.channel(leader)).ListOffsets(
            ListOffsetsRequest(queries=queries, isolation_level=self.isolation_level),
            timeout=CALL_TIMEOUT_SECONDS,
        )
        return response.answers

    def channel(self, address: str) -> grpc.Channel:
        """Return the connection to a broker's gRPC address. The first call opens it."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._open(address)
        return channel

    def _open(self, address: str) -> grpc.Channel:
        security = self._security.grpc
        credentials = security.channel_credentials()
        if credentials is None:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        options = (*CHANNEL_OPTIONS, *security.channel_options())
        return grpc.secure_channel(address, credentials, options=options)


def is_complete(response: DescribeTopicsResponse) -> bool:
    """Return True if a broker knew all topics. One that has just started may not know them."""
    return len(response.brokers) > 0 and not any(topic.error_code for topic in response.topics)
