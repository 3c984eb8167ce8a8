"""The gRPC client of a cluster: topics and their leaders, offsets, and ranges of records.

It starts from Kafka's ``bootstrap.servers``. Every call survives the ordinary events of a cluster,
such as a leader that moves or a broker that goes away. This module imports grpc, so import it only
in the process that calls: Spark forks its workers, and gRPC does not survive a fork.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

import grpc

from quorate.client.auto_create_request import ask_for_topic
from quorate.client.bootstrap import BootstrapError, discover
from quorate.client.security import Securities
from quorate.common.topic_partition import TopicPartition
from quorate.spark.broker_channels import BrokerChannels
from quorate.spark.call_errors import RETRIABLE, error_name, raise_if_permanent, reason_of
from quorate.spark.known_topics import KnownTopics, Replica
from quorate.spark.offset_ranges import OffsetQuestion
from quorate.spark.reached_brokers import OF_THIS_PROCESS, ReachedBrokers
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
PATIENCE_SECONDS = 3.0
"""The time that a broker may take to answer a request that another one can answer as well."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""The isolation levels, as Kafka numbers them."""
READ_METHOD = "/quorate.v1.RangeRead/Read"


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
        reached: ReachedBrokers = OF_THIS_PROCESS,
    ) -> None:
        """
        Args:
            bootstrap_servers: Kafka's addresses, with commas between.
            retry_policy: the budget of tries of each call.
            security: how the client proves its identity, and which brokers it trusts.
            committed_only: topics end at their first open transaction, and frames name the aborted
                transactions.
            reached: what clients before this one have found out.
        """
        self.isolation_level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        self._security = security
        self._bootstrap_servers = bootstrap_servers
        self._retry_policy = retry_policy
        self._reached = reached
        self._addresses = reached.found_behind((bootstrap_servers, security))
        self._channels = BrokerChannels(security.grpc)
        self.known = KnownTopics()
        """The descriptions of topics that brokers have sent so far."""

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
        self._channels.close()

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
                self._remember_addresses([])
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
        return self.known.leader_of(partition)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of the topic of that name as last heard; None if there is no such topic."""
        return self.known.topic_id(topic)

    def replica_to_read(
        self, partition: TopicPartition, refused: Container[str] = ()
    ) -> Replica | None:
        """Return the leader or, while this host does not reach it, a follower in sync.

        Args:
            partition: what is read.
            refused: addresses of followers that cannot serve it for now.

        Returns:
            The leader as well if no other replica is left; None if there is no leader.
        """
        replicas = self.known.replicas_of(partition)
        for replica in replicas:
            if not self._reached.is_silent(replica.address) and replica.address not in refused:
                return replica
        return replicas[0] if replicas else None

    def answers(self, address: str) -> bool:
        """Return False if a broker does not answer this host; others are asked first from then on.

        Its connection is closed: that of a link which was cut stays silent long after the link
        works again.
        """
        try:
            RangeReadStub(self.channel(address)).DescribeTopics(
                DescribeTopicsRequest(), timeout=PATIENCE_SECONDS
            )
        except grpc.RpcError as error:
            raise_if_permanent(error)
            self._reached.note_silent(address)
            self._channels.drop(address)
            return False
        return True

    def ask_last(self, address: str) -> None:
        """Ask the other brokers before this one, the next time."""
        self._addresses.sort(key=lambda known: known == address)

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
        left = self._reached.silent_last(self._addresses)
        while left:
            address = left.pop(0)
            timeout = PATIENCE_SECONDS if left else CALL_TIMEOUT_SECONDS
            try:
                response = RangeReadStub(self.channel(address)).DescribeTopics(
                    request, timeout=timeout
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
        known = self.known.remember(response) or self._addresses
        # The broker that answered is asked first the next time, not one that hangs.
        others = [address for address in known if address != responder]
        self._remember_addresses([responder, *others])

    def _remember_addresses(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._reached.note_found((self._bootstrap_servers, self._security), addresses)

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
        return self._channels.to(address)


def is_complete(response: DescribeTopicsResponse) -> bool:
    """Return True if a broker knew all topics. One that has just started may not know them."""
    return len(response.brokers) > 0 and not any(topic.error_code for topic in response.topics)
