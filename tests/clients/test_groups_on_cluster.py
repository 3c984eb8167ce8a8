"""Consumer groups of unmodified clients: partitions are shared, offsets kept, coordinators lost."""

import asyncio
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from quorate.broker.config.internal_topics import OFFSETS_TOPIC, partition_of
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.cli import quorate, quorate_error, quorate_json
from tests.support.kafka_clients import PATIENCE_S, Confluent, KafkaPython
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

PARTITIONS = 6
PER_PARTITION = 50
ALL = PARTITIONS * PER_PARTITION


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    return module_quorate_cluster(brokers=3, config={"group.initial.rebalance.delay.ms": 500})


@pytest.fixture(scope="module")
def topic(cluster: RunningCluster) -> str:
    client = Confluent(cluster.bootstrap)
    client.create("orders", PARTITIONS, replication_factor=3)
    client.produce(
        "orders", {p: [b"%d-%d" % (p, n) for n in range(PER_PARTITION)] for p in range(PARTITIONS)}
    )
    return "orders"


class Group:
    """Members of librdkafka, polled in turn; what each record was read as."""

    def __init__(self, cluster: RunningCluster, group_id: str, strategy: str) -> None:
        self._config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 10_000,
        }
        self.members: list[confluent_kafka.Consumer] = []
        self.read: list[tuple[int, int]] = []

    def add(self, topic: str, **config: str) -> confluent_kafka.Consumer:
        more = {key.replace("_", "."): value for key, value in config.items()}
        member = confluent_kafka.Consumer({**self._config, **more})
        member.subscribe([topic])
        self.members.append(member)
        return member

    def poll(self) -> None:
        for member in self.members:
            for message in member.consume(100, 0.05):
                assert message.error() is None, message.error()
                self.read.append((message.partition() or 0, message.offset() or 0))

    def shares(self) -> list[int]:
        """How many partitions each member has; each has its own."""
        assignments = [{tp.partition for tp in member.assignment()} for member in self.members]
        assert sum(map(len, assignments)) == len(set().union(*assignments))
        return [len(each) for each in assignments]

    def is_at_the_end(self) -> bool:
        """Whether every member has read all of its partitions. A partition that has another member
        since is read a second time, because nothing was committed.
        """
        positions = [
            tp.offset for member in self.members for tp in member.position(member.assignment())
        ]
        return positions == PARTITIONS * [PER_PARTITION]

    def poll_until(self, holds: Callable[[], bool], what: str) -> None:
        def polled() -> bool:
            self.poll()
            return holds()

        wait_until(polled, what, timeout_s=PATIENCE_S)

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.fixture
def new_group(cluster: RunningCluster) -> Iterator[Callable[[str, str], Group]]:
    groups: list[Group] = []

    def make(group_id: str, strategy: str = "cooperative-sticky") -> Group:
        groups.append(Group(cluster, group_id, strategy))
        return groups[-1]

    yield make
    for group in groups:
        group.close()


@pytest.mark.parametrize(
    "strategy", ["range", pytest.param("roundrobin", marks=pytest.mark.slow), "cooperative-sticky"]
)
def test_members_share_partitions_and_take_over_from_those_who_leave(
    topic: str, new_group: Callable[[str, str], Group], strategy: str
) -> None:
    group = new_group(f"share-{strategy}", strategy)
    for _ in range(3):
        group.add(topic)
    group.poll_until(lambda: group.shares() == [2, 2, 2], "two partitions each")
    group.poll_until(group.is_at_the_end, "every record")
    assert len(set(group.read)) == ALL
    for member in group.members:
        member.commit(asynchronous=False)
    group.members.pop().close()
    group.poll_until(lambda: sorted(group.shares()) == [3, 3], "three partitions each")
    before = len(group.read)
    group.poll()
    assert len(group.read) == before, "what was committed is not read again"


def test_whoever_comes_later_goes_on_where_the_group_was(
    cluster: RunningCluster, topic: str, new_group: Callable[[str, str], Group]
) -> None:
    first = new_group("goes-on", "range")
    member = first.add(topic)
    first.poll_until(lambda: len(first.read) == ALL, "every record")
    tp = confluent_kafka.TopicPartition(topic, 0, 20, metadata="half way")
    member.commit(offsets=[tp], asynchronous=False)
    (committed,) = member.committed([confluent_kafka.TopicPartition(topic, 0)], PATIENCE_S)
    assert (committed.offset, committed.metadata) == (20, "half way")
    first.members.pop().close()

    seen: list[int] = []
    with KafkaPython(cluster.bootstrap).in_group("goes-on", topic) as consumer:

        def all_seen() -> bool:
            for tp, records in consumer.poll(timeout_ms=200).items():
                seen.extend(record.offset for record in records if tp.partition == 0)
            return len(seen) >= PER_PARTITION - 20

        wait_until(all_seen, "the records after the committed offset", timeout_s=PATIENCE_S)
    assert seen == list(range(20, PER_PARTITION))


async def test_aiokafka_shares_with_others_of_its_kind(cluster: RunningCluster, topic: str) -> None:
    members = [
        aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id="aio",
            auto_offset_reset="earliest",
        )
        for _ in range(2)
    ]
    for member in members:
        await member.start()
    try:
        read: set[tuple[int, int]] = set()
        async with asyncio.timeout(PATIENCE_S):
            while len(read) < ALL or [len(member.assignment()) for member in members] != [3, 3]:
                for member in members:
                    for tp, records in (await member.getmany(timeout_ms=100)).items():
                        read |= {(tp.partition, record.offset) for record in records}
    finally:
        for member in members:
            await member.stop()


def coordinator_of(cluster: RunningCluster, group_id: str) -> int:
    with cluster.admin() as admin:
        partitions = admin.describe_topics([OFFSETS_TOPIC])[0].partitions
    return partitions[partition_of(group_id, len(partitions))].leader


def test_a_group_outlives_its_coordinator(
    cluster: RunningCluster, topic: str, new_group: Callable[[str, str], Group]
) -> None:
    group = new_group("outlives", "range")
    for number in range(2):
        group.add(topic, group_instance_id=f"instance-{number}")
    group.poll_until(lambda: group.shares() == [3, 3], "three partitions each")
    group.poll_until(lambda: len(set(group.read)) == ALL, "every record")
    for member in group.members:
        member.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    before = admin.describe_consumer_groups(["outlives"])["outlives"].result()
    wait_until_whole(cluster)
    killed = coordinator_of(cluster, "outlives")
    cluster.kill_broker(killed)
    try:
        wanted = [confluent_kafka.TopicPartition(topic, p) for p in range(PARTITIONS)]

        def committed() -> bool:
            group.poll()
            try:
                found = group.members[0].committed(wanted, 5)
            except confluent_kafka.KafkaException:
                return False
            return [tp.offset for tp in found] == [PER_PARTITION] * PARTITIONS

        wait_until(committed, "the offsets at the new coordinator", timeout_s=PATIENCE_S)
        assert coordinator_of(cluster, "outlives") != killed
        # Another admin client: the first one goes on asking the coordinator that it knew.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        after = admin.describe_consumer_groups(["outlives"])["outlives"].result()
        assert {m.member_id for m in after.members} == {m.member_id for m in before.members}
        group.poll_until(lambda: group.shares() == [3, 3], "the same shares")
        assert len(group.read) == ALL, "nobody had to read again"
    finally:
        cluster.restart_broker(killed)
        wait_until_whole(cluster)


def test_administrators_see_and_delete_groups(
    cluster: RunningCluster, topic: str, new_group: Callable[[str, str], Group]
) -> None:
    group = new_group("seen", "range")
    member = group.add(topic)
    group.poll_until(lambda: group.shares() == [PARTITIONS], "all partitions")
    member.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 7)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    listed = admin.list_consumer_groups().result()
    assert not listed.errors
    assert "seen" in {each.group_id for each in listed.valid}
    described = admin.describe_consumer_groups(["seen"])["seen"].result()
    assert described.partition_assignor == "range"
    (seen,) = described.members
    assert len(seen.assignment.topic_partitions) == PARTITIONS
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["seen"])["seen"].result()
    group.members.pop().close()
    admin.delete_consumer_groups(["seen"])["seen"].result()
    assert "seen" not in {each.group_id for each in admin.list_consumer_groups().result().valid}


def test_the_command_line_shows_resets_and_deletes_groups(
    cluster: RunningCluster, topic: str, new_group: Callable[[str, str], Group]
) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    group = new_group("by-hand", "range")
    member = group.add(topic)
    group.poll_until(lambda: group.shares() == [PARTITIONS], "all partitions")
    half = [confluent_kafka.TopicPartition(topic, p, 25) for p in range(PARTITIONS)]
    member.commit(offsets=half, asynchronous=False)
    shown = quorate_json("groups", "describe", *at, "--group", "by-hand")
    assert (shown["state"], shown["members"], shown["lag"]) == ("stable", 1, 25 * PARTITIONS)
    reset = ("groups", "reset-offsets", *at, "--group", "by-hand")
    assert "it has members; stop its consumers first" in quorate_error(*reset, "--to-latest")
    group.members.pop().close()

    planned = quorate_json(*reset, "--shift-by", "-30", "--dry-run")
    assert {(move["before"], move["after"]) for move in planned["moves"]} == {(25, 0)}
    shown = quorate_json("groups", "describe", *at, "--group", "by-hand")
    assert (shown["state"], shown["lag"]) == ("empty", 25 * PARTITIONS)
    quorate(*reset, "--topic", f"{topic}:0,2", "--to-offset", "40")
    quorate(*reset, "--topic", f"{topic}:3", "--by-duration", "1d")
    quorate(*reset, "--topic", f"{topic}:4", "--to-datetime", "2100-01-01T00:00:00+00:00")
    shown = quorate_json("groups", "describe", *at, "--group", "by-hand")
    assert [row["committed"] for row in shown["partitions"]] == [40, 25, 40, 0, 50, 25]
    assert "no partition of orders" in quorate_error(*reset, "--topic", f"{topic}:9", "--to-latest")

    listed = quorate_json("groups", "list", *at, "--state", "empty")
    assert {"group": "by-hand", "state": "empty"} in listed
    quorate("groups", "delete", *at, "--group", "by-hand")
    refused = quorate_error("groups", "describe", *at, "--group", "by-hand")
    assert "there is no group 'by-hand'" in refused
