"""A consumer group and its members, which behave as clients do and lose answers now and then."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.consumer_log_format import (
    read_key,
)
from quorate.broker.coordinator.groups.consumer.group_epochs import ConsumerGroupLimits
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
)
from quorate.broker.coordinator.groups.consumer.stored_group import StoredConsumerGroup
from quorate.broker.coordinator.groups.consumer.target_assignment import Assignor
from quorate.broker.coordinator.groups.consumer.uniform_assignor import assign_uniformly
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.common.types import MetadataOffset, TopicId
from quorate_proto.v1 import errors_pb2

SESSION_MS = 45_000
REBALANCE_MS = 60_000
LIMITS = ConsumerGroupLimits(
    max_members=100,
    session_timeout_ms=SESSION_MS,
    heartbeat_interval_ms=5_000,
    assignment_interval_ms=1_000,
)

T = TypeVar("T")
Place = tuple[TopicId, int]


class Topic(NamedTuple):
    topic_id: TopicId
    partition_count: int


class FakeTopics:
    """The topics of a cluster."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.metadata_offset = MetadataOffset(0)
        self.hidden: dict[str, Topic] | None = None
        self._known = asyncio.Event()
        self._known.set()

    def hide(self) -> None:
        """Be as those of a broker that was not told of the cluster yet."""
        self.hidden, self.topics = self.topics, {}
        self._known.clear()

    def show(self) -> None:
        """Be as they were before ``hide``."""
        assert self.hidden is not None
        self.topics = self.hidden
        self._known.set()

    async def until_known(self) -> None:
        await self._known.wait()

    def create(self, name: str, partition_count: int) -> TopicId:
        self.metadata_offset = MetadataOffset(self.metadata_offset + 1)
        topic_id = TopicId(f"{name}#{self.metadata_offset}".encode().ljust(16)[:16])
        self.topics[name] = Topic(topic_id, partition_count)
        return topic_id

    def grow(self, name: str, partition_count: int) -> None:
        self.metadata_offset = MetadataOffset(self.metadata_offset + 1)
        self.topics[name] = self.topics[name]._replace(partition_count=partition_count)

    def delete(self, name: str) -> None:
        self.metadata_offset = MetadataOffset(self.metadata_offset + 1)
        del self.topics[name]

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_name(self, topic_id: TopicId) -> str | None:
        names = (name for name, topic in self.topics.items() if topic.topic_id == topic_id)
        return next(names, None)


def carried_out(steps: Steps[T]) -> T:
    """Carry out work in steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class World:
    """A group with its log, so that another coordinator can take it over."""

    def __init__(
        self,
        limits: ConsumerGroupLimits = LIMITS,
        assign: Assignor = assign_uniformly,
    ) -> None:
        self.topics = FakeTopics()
        self.limits = limits
        self.assign = assign
        self.now_ms = 0
        self.log: list[LogRecord] = []
        self.group = ConsumerGroup("g", limits, self.topics)

    def write(self, records: Sequence[LogRecord]) -> None:
        self.log += records

    def make_target(self) -> None:
        """Bring the target assignment to the present group epoch."""
        if self.group.needs_target:
            new = carried_out(self.group.new_target(self.assign))
            self.write(self.group.take_target(new, 1))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Carry a heartbeat out as a shard does, with the target assignment in between."""
        subscribed = self.group.subscribe(request, self.now_ms)
        self.write(subscribed.records)
        seen = subscribed.member.current
        self.make_target()
        answer, records = self.group.reconcile(
            subscribed.member, request, seen, self.now_ms, has_changed=subscribed.has_changed
        )
        self.write(records)
        return answer

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        while self.group.next_deadline_ms <= self.now_ms:
            self.write(self.group.expire(self.now_ms))
            if self.group.next_deadline_ms <= self.now_ms + 1:
                self.now_ms += 1

    def topics_changed(self) -> None:
        self.write(self.group.topics_changed())

    def fail_over(self) -> None:
        """Let another coordinator take the group over from the log."""
        self.group = self.from_log()
        self.topics_changed()

    def from_log(self) -> ConsumerGroup:
        stored = StoredConsumerGroup()
        for record in self.log:
            stored.take(read_key(record.key), record.value)
        return stored.group("g", self.limits, self.topics, self.now_ms)


class Client:
    """One consumer. It does what it is told, and says what it has."""

    def __init__(
        self,
        world: World,
        member_id: str,
        topics: frozenset[str],
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.assignor = assignor
        self.epoch = 0
        self.has: set[Place] = set()
        """The partitions that it consumes."""
        self.told: set[Place] = set()
        """The partitions that it is to have. It takes time to give others up."""
        self.missed_an_answer = False
        self.said_topics: frozenset[str] | None = None
        self.is_over = False

    def heartbeat(self, *, lose_answer: bool = False, full: bool = False) -> int:
        """Send one heartbeat and do what the answer says; return the error code."""
        joins = self.epoch == 0
        if joins:
            self.has.clear()
        whole = joins or full or self.missed_an_answer
        request = HeartbeatRequest(
            member_id=self.member_id,
            member_epoch=self.epoch,
            client_id="c",
            client_host="h",
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if whole else -1,
            topic_names=self.topics if whole or self.said_topics != self.topics else None,
            server_assignor=self.assignor,
            claimed=by_topic(self.has),
        )
        try:
            answer = self.world.heartbeat(request)
        except KafkaError as error:
            if error.code in (errors_pb2.FENCED_MEMBER_EPOCH, errors_pb2.UNKNOWN_MEMBER_ID):
                self.epoch = 0
                self.has.clear()
                self.told.clear()
            return error.code
        self.missed_an_answer = lose_answer
        if lose_answer:
            return 0
        self.said_topics = self.topics
        assert answer.member_epoch >= self.epoch, "epochs never go back"
        self.epoch = answer.member_epoch
        if answer.assigned is not None:
            self.told = {(topic, p) for topic, own in answer.assigned.items() for p in own}
        if self.has <= self.told:
            self.has = set(self.told)
        return 0

    def do_as_told(self) -> None:
        """Give up what is not to be kept, and then begin with what is new."""
        self.has &= self.told
        self.has |= self.told

    def leave(self, *, for_a_while: bool = False) -> None:
        """Leave the group."""
        epoch = -2 if for_a_while else -1
        request = HeartbeatRequest(self.member_id, epoch, "c", "h", self.instance_id)
        self.world.write(self.world.group.leave(request))
        self.has.clear()
        self.told.clear()
        self.is_over = True


def by_topic(places: set[Place]) -> Mapping[TopicId, frozenset[int]]:
    topics = {topic for topic, _ in places}
    return {topic: frozenset(p for other, p in places if other == topic) for topic in topics}


def all_places(topics: FakeTopics, names: frozenset[str]) -> Iterator[Place]:
    for name in names:
        topic = topics.topic(name)
        if topic is not None:
            for partition in range(topic.partition_count):
                yield topic.topic_id, partition
