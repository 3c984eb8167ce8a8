"""Groups of the consumer protocol (KIP-848) with real clients: members come and go, coordinators
fail, and no partition has two consumers.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from quorate.broker.config.internal_topics import OFFSETS_TOPIC, partition_of
from quorate.client.results import NewPartitions, NewTopic
from quorate.testing import RunningCluster, running_cluster
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC, PARTITIONS = "orders", 6
CONFIG = {
    "offsets.topic.num.partitions": 3,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.assignment.interval.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
CONSUMER = {"group.protocol": "consumer"}
EAGER = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 300,
}
COOPERATIVE = EAGER | {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, config=CONFIG) as cluster:
        create(cluster, TOPIC, PARTITIONS)
        wait_until_whole(cluster)
        yield cluster


def create(cluster: RunningCluster, name: str, partitions: int) -> None:
    with cluster.admin() as admin:
        new = NewTopic(name=name, num_partitions=partitions, replication_factor=3)
        admin.create_topics([new])[0].raise_for_error()


class Member:
    """A consumer in a thread of its own, which notes what it has, and commits what it has read."""

    def __init__(
        self,
        cluster: RunningCluster,
        notes: "Notes",
        name: str,
        topics: list[str],
        protocol: Mapping[str, str | int] = CONSUMER,
    ) -> None:
        self.name = name
        self._notes = notes
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": notes.group_id,
                **protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "client.id": name,
                "log_level": 0,
            }
        )
        self._topics = topics
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe(
            self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is None or message.error():
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self._notes.consumed(self.name, (topic, partition), offset)
            after = TopicPartition(topic, partition, offset + 1)
            try:
                self._consumer.commit(offsets=[after], asynchronous=False)
            except KafkaException:
                continue  # Whoever gets the partition reads the record again.
            self._notes.committed((topic, partition), offset + 1)
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._notes.assigned(self.name, [(each.topic, each.partition) for each in partitions])

    def _revoked(self, _consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._notes.revoked(self.name, [(each.topic, each.partition) for each in partitions])

    def leave(self) -> None:
        self._notes.leaving.add(self.name)
        self._stop.set()
        self._thread.join()


Place = tuple[str, int]


class Notes:
    """Who has which partition, and what was read and committed. ``faults`` must stay empty."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.faults: list[str] = []
        self.owners: dict[Place, str] = {}
        self.read: dict[Place, set[int]] = {}
        self.rebalanced: list[str] = []
        self.leaving: set[str] = set()
        self.emptied: list[str] = []
        """The members that had nothing left, though they did not leave."""
        self._committed: dict[Place, int] = {}
        self._lock = threading.Lock()

    def assigned(self, member: str, places: Sequence[Place]) -> None:
        with self._lock:
            if places:
                self.rebalanced.append(member)
            for place in places:
                owner = self.owners.get(place)
                if owner is not None:
                    self.faults.append(f"{place} is given to {member} while {owner} has it")
                self.owners[place] = member

    def revoked(self, member: str, places: Sequence[Place]) -> None:
        with self._lock:
            for place in places:
                if self.owners.get(place) == member:
                    del self.owners[place]
            if member not in self.leaving and member not in self.owners.values():
                self.emptied.append(member)

    def consumed(self, member: str, place: Place, offset: int) -> None:
        with self._lock:
            owner = self.owners.get(place)
            if owner != member:
                self.faults.append(f"{member} reads {place} at {offset}, which {owner} has")
            self.read.setdefault(place, set()).add(offset)

    def committed(self, place: Place, offset: int) -> None:
        with self._lock:
            before = self._committed.get(place, 0)
            if offset < before:
                self.faults.append(f"the offset of {place} goes back from {before} to {offset}")
            self._committed[place] = offset

    def shares(self) -> list[int]:
        """Return how many partitions each member has, the smallest number first."""
        with self._lock:
            owners = list(self.owners.values())
        return sorted(owners.count(member) for member in set(owners))


def produce(cluster: RunningCluster, count: int, topic: str = TOPIC) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def all_read(notes: Notes, count: int) -> Callable[[], bool]:
    """Return whether each partition was read up to its ``count``-th record, without a gap."""
    wanted = set(range(count))
    places = [(TOPIC, partition) for partition in range(PARTITIONS)]
    return lambda: all(notes.read.get(place, set()) >= wanted for place in places)


def coordinator(cluster: RunningCluster, group_id: str) -> int:
    with cluster.admin() as admin:
        partitions = admin.describe_topics([OFFSETS_TOPIC])[0].partitions
    return partitions[partition_of(group_id, len(partitions))].leader


def test_members_come_and_go_and_coordinators_fail(cluster: RunningCluster) -> None:
    notes = Notes("standing")
    members = [Member(cluster, notes, "first", [TOPIC])]
    try:
        produce(cluster, 60)
        wait_until(lambda: notes.shares() == [6], "the first member has all")
        members.append(Member(cluster, notes, "second", [TOPIC]))
        wait_until(lambda: notes.shares() == [3, 3], "two members share")
        members.append(Member(cluster, notes, "third", [TOPIC]))
        wait_until(lambda: notes.shares() == [2, 2, 2], "three members share")
        stopped = coordinator(cluster, notes.group_id)
        cluster.kill_broker(stopped)
        produce(cluster, 60)
        wait_until(all_read(notes, 20), "all is read by another coordinator's members")
        assert notes.shares() == [2, 2, 2], "members keep their partitions when coordinators fail"
        members.pop(0).leave()
        wait_until(lambda: notes.shares() == [3, 3], "two members share what the first one had")
        cluster.restart_broker(stopped)
        wait_until_whole(cluster)
    finally:
        for member in members:
            member.leave()
    assert not notes.faults


def type_of(cluster: RunningCluster, notes: Notes) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    found = admin.describe_consumer_groups([notes.group_id])[notes.group_id].result().type
    assert isinstance(found, ConsumerGroupType)
    return found


def roll(
    cluster: RunningCluster,
    notes: Notes,
    members: list[Member],
    protocol: Mapping[str, str | int],
    *,
    kill: bool = False,
) -> None:
    """Restart the members with another protocol, one by one; perhaps the coordinator fails between
    two of them."""
    share = PARTITIONS // len(members)
    for number in range(len(members)):
        members.pop(0).leave()
        name = f"{notes.group_id}-{len(notes.leaving)}"
        members.append(Member(cluster, notes, name, [TOPIC], protocol))
        wait_until(lambda: notes.shares() == [share] * len(members), f"{name} has its share")
        if kill and not number:
            stopped = coordinator(cluster, notes.group_id)
            cluster.kill_broker(stopped)
            cluster.restart_broker(stopped)


@pytest.mark.parametrize(
    "classic",
    [
        pytest.param(COOPERATIVE, id="cooperative"),
        pytest.param(EAGER, id="eager", marks=pytest.mark.slow),
    ],
)
def test_members_change_their_protocol_one_by_one(
    cluster: RunningCluster, classic: Mapping[str, str | int]
) -> None:
    strategy = str(classic["partition.assignment.strategy"])
    notes = Notes(f"migrating-{strategy}")
    members = [Member(cluster, notes, f"{strategy}-{n}", [TOPIC], classic) for n in range(2)]
    try:
        produce(cluster, 60)
        wait_until(lambda: notes.shares() == [3, 3], "two members share")
        notes.emptied.clear()
        assert type_of(cluster, notes) is ConsumerGroupType.CLASSIC
        roll(cluster, notes, members, CONSUMER, kill=True)
        assert type_of(cluster, notes) is ConsumerGroupType.CONSUMER
        produce(cluster, 60)
        roll(cluster, notes, members, classic)
        assert type_of(cluster, notes) is ConsumerGroupType.CLASSIC
        produce(cluster, 60)
        wait_until(all_read(notes, 30), "all is read")
        wait_until_whole(cluster)
    finally:
        for member in members:
            member.leave()
    assert not notes.faults
    if classic is COOPERATIVE:
        assert not notes.emptied, "nobody stops because another one is restarted"


def test_topics_grow_and_match_without_any_clients_doing(cluster: RunningCluster) -> None:
    create(cluster, "payments-1", 2)
    notes = Notes("matching")
    member = Member(cluster, notes, "only", ["^payments-[0-9]+"])
    try:
        wait_until(lambda: notes.shares() == [2], "the topic that matches is assigned")
        with cluster.admin() as admin:
            admin.create_partitions([NewPartitions(name="payments-1", count=5)])[
                0
            ].raise_for_error()
        wait_until(lambda: notes.shares() == [5], "partitions that are added are assigned")
        described = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        found = described.describe_consumer_groups([notes.group_id])[notes.group_id].result()
        assert (found.state, found.type) == (
            ConsumerGroupState.STABLE,
            ConsumerGroupType.CONSUMER,
        )
        assert len(found.members[0].assignment.topic_partitions) == 5
    finally:
        member.leave()
    assert not notes.faults
