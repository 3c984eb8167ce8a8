"""Asking the cluster, over gRPC: topics and their leaders, offsets, ranges.

Starts from Kafka's ``bootstrap.servers``. Every call survives what a cluster does in passing: a
leader that moves, a broker that goes away. grpc is imported by this module, so import it only in
the process that calls: Spark forks its workers, and gRPC does not survive a fork.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self, TypeVar

import grpc

from quorate.client.auto_create import ask_for_topic
from quorate.client.bootstrap import BootstrapError, discover, format_address
from quorate.client.security import Securities
from quorate.spark.call_errors import RETRIABLE, error_name, raise_if_permanent, reason_of
from quorate.spark.ranges import TopicPartition
from quorate.spark.retries import Retries
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
"""Isolation levels, by Kafka's numbers."""
READ_METHOD = "/quorate.v1.RangeRead/Read"
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # Brokers are peers, not web pages: a proxy of the environment must not get in between.
    ("grpc.enable_http_proxy", 0),
    # A broker that restarts is to be found again within the retries, not within gRPC's minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class OffsetQuestion(NamedTuple):
    """Which offset of a partition: `EARLIEST`, `LATEST`, or the first at or after a time (ms)."""

    topic_partition: TopicPartition
    timestamp_ms: int


class _Topic(NamedTuple):
    topic_id: bytes
    partitions: int


class RangeCall(Protocol):
    """A running ``RangeRead.Read``: its raw frames."""

    def __iter__(self) -> Iterator[bytes]: ...
    def cancel(self) -> bool: ...


class ClusterClient:
    """Calls to one cluster; close it, or use it as a context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        new_retries: Callable[[], Retries],
        security: Securities = Securities(),  # noqa: B008 - frozen
        *,
        committed_only: bool = True,
    ) -> None:
        """``committed_only``: topics end at their first open transaction, and frames tell which
        ones were aborted."""
        self.isolation_level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        self._security = security
        self._bootstrap_servers = bootstrap_servers
        self._new_retries = new_retries
        self._addresses: list[str] = []
        self._channels: dict[str, grpc.Channel] = {}
        self._leaders: dict[TopicPartition, str] = {}
        self._topics: dict[str, _Topic] = {}

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
        """Close all connections; streams that are open fail."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def describe_topics(
        self, topics: Sequence[str] = (), *, every: bool = False
    ) -> DescribeTopicsResponse:
        """Topics by name, or every topic, from any broker; remembers who leads.

        Raises:
            ClusterUnavailable: no broker answered within the retries.
        """
        request = DescribeTopicsRequest(topics=topics, all=every)
        retries = self._new_retries()
        while True:
            try:
                return self._describe_once(request)
            except (BootstrapError, grpc.RpcError) as error:
                self._addresses.clear()
                raise_if_permanent(error)
                retries.pause(f"describing topics at {self._bootstrap_servers}", reason_of(error))

    def ask_any(self, attempt: str, ask: Callable[[grpc.Channel], T]) -> T:
        """What the first broker says that answers; ``attempt``: what it was asked for.

        Raises:
            ClusterUnavailable: none did within the retries.
        """
        retries = self._new_retries()
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
        """Ask another one the next time; once all were left, whoever is there then."""
        del self._addresses[:1]

    def list_offsets(
        self, questions: Iterable[OffsetQuestion]
    ) -> dict[OffsetQuestion, OffsetAnswer]:
        """Offsets from the leaders, one call to each; the answers carry no retriable error.

        Raises:
            ClusterUnavailable: a leader did not answer within the retries.
        """
        pending = list(dict.fromkeys(questions))
        answers: dict[OffsetQuestion, OffsetAnswer] = {}
        retries = self._new_retries()
        while True:
            failures = self._ask_leaders(pending, answers)
            pending = [question for question in pending if question not in answers]
            if not pending:
                return answers
            partition, reason = next(iter(failures.items()))
            retries.pause(f"listing offsets of {partition}", reason)
            self.refresh(question.topic_partition for question in pending)

    def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask again who leads."""
        self.describe_topics(sorted({partition.topic for partition in partitions}))

    def leader_of(self, partition: TopicPartition) -> str | None:
        """The gRPC address of the leader as last heard; None if there is none."""
        return self._leaders.get(partition)

    def topic_id(self, topic: str) -> bytes | None:
        """The id of the topic of that name as last heard; None if there is none."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the cluster has the partition, as last heard from a broker that should know."""
        known = self._topics.get(partition.topic)
        return known is not None and partition.partition < known.partitions

    def ask_for_topic(self, topic: str) -> int:
        """Have it created if the cluster does so; the Kafka error code of `auto_create`.

        Raises:
            BootstrapError: no bootstrap server answered.
        """
        return ask_for_topic(self._bootstrap_servers, topic, self._security.kafka)

    def any_broker(self) -> str:
        """The gRPC address of a broker: the one that answered last, if any did.

        Raises:
            ClusterUnavailable: no broker answered within the retries.
        """
        if not self._addresses:
            self.describe_topics()
        return self._addresses[0]

    def open_range(self, leader: str, request: RangeReadRequest) -> RangeCall:
        """The raw frames of ``RangeRead.Read``; cancel it when done."""
        read: Callable[[RangeReadRequest], RangeCall] = self.channel(leader).unary_stream(
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
        # Who answered is asked first the next time: not a broker that hangs, again and again.
        self._addresses = [responder, *others]
        for topic in response.topics:
            self._topics.pop(topic.topic, None)
            if not topic.error_code:
                self._topics[topic.topic] = _Topic(topic.topic_id, len(topic.partitions))
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
        """Fill in what the leaders answer; the reasons for what is still open."""
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
        """The connection to a broker's gRPC address, opened on the first call."""
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
    """Whether a broker knew all it was asked for; one that has just started does not."""
    return len(response.brokers) > 0 and not any(topic.error_code for topic in response.topics)
