"""Transactions whose brokers are lost at the worst moment, and those that nobody would ever end."""

import json
import struct
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as Assigned

from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC, partition_of
from quorate.cli.main import run
from quorate.client.call_steps import Steps, ToAllBrokers
from quorate.client.calls.cluster_calls import cluster_status
from quorate.client.results import ConfigChange, NewTopic
from quorate.common.types import TopicPartition
from quorate.testing import RunningCluster, running_cluster
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_clients import KafkaPython
from tests.support.raw_client import RawClient, produce, string
from tests.support.record_batches import TRANSACTIONAL, Record, encode_batch
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_known, wait_until_whole

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PATIENCE_S = 30.0
PARTITIONS = 3
INIT_PRODUCER_ID = 22
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, config={"min.insync.replicas": 1}) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> str:
    """A topic of this test alone."""
    name = str(request.node.originalname.removeprefix("test_"))[:60]
    create(cluster, name, partitions=PARTITIONS, replication_factor=3)
    return name


def create(
    cluster: RunningCluster, topic: str, *, partitions: int, replication_factor: int
) -> None:
    new = NewTopic(name=topic, num_partitions=partitions, replication_factor=replication_factor)
    with cluster.admin() as admin:
        admin.create_topics([new])[0].raise_for_error()
    wait_until_known(cluster, topic, partitions)


def leader_of(cluster: RunningCluster, topic: str, partition: int = 0) -> int:
    with cluster.admin() as admin:
        return admin.describe_topics([topic])[0].partitions[partition].leader


def transactional(cluster: RunningCluster, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def an_id_coordinated_elsewhere(cluster: RunningCluster, broker_id: int) -> tuple[str, int]:
    """A transactional id whose coordinator is another broker than that, and who that is."""
    transactional(cluster, "anybody")
    with cluster.admin() as admin:
        partitions = admin.describe_topics([TRANSACTIONS_TOPIC])[0].partitions
    for number in range(1_000):
        name = f"pay-{number}"
        coordinator = partitions[partition_of(name, len(partitions))].leader
        if coordinator not in (broker_id, -1):
            return name, coordinator
    raise AssertionError(f"broker {broker_id} leads all of {TRANSACTIONS_TOPIC}")


def committed_values(
    cluster: RunningCluster, topic: str, count: int, partition: int = 0
) -> list[bytes]:
    """The first values of a partition that are shown to whoever reads what was committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([Assigned(topic, partition, OFFSET_BEGINNING)])
    values: list[bytes] = []

    def all_there() -> bool:
        for message in consumer.consume(count, timeout=0.5):
            value = message.value()
            if message.error() is None and value is not None:
                values.append(value)
        return len(values) >= count

    try:
        wait_until(all_there, f"{count} committed records of {topic}")
    finally:
        consumer.close()
    return values


def test_a_decision_survives_its_coordinator_and_the_leaders_it_was_to_reach(
    cluster: RunningCluster, topic: str
) -> None:
    """One partition's leader is lost and replaced, another's comes back much later.

    In between the coordinator is killed: the next one finds the decision in the log. Whoever leads
    gets a marker, and nothing is shown before.
    """
    alone = f"{topic}-alone"
    create(cluster, alone, partitions=1, replication_factor=1)
    lost = leader_of(cluster, alone)
    moving = next(p for p in range(PARTITIONS) if leader_of(cluster, topic, p) == lost)
    name, coordinator = an_id_coordinated_elsewhere(cluster, lost)
    producer = transactional(cluster, name)
    producer.begin_transaction()
    producer.produce(alone, b"waits", partition=0)
    producer.produce(topic, b"moves", partition=moving)
    assert producer.flush(PATIENCE_S) == 0
    cluster.kill_broker(lost)
    committing = threading.Thread(target=producer.commit_transaction, args=(PATIENCE_S,))
    committing.start()
    try:
        wait_until(lambda: state(cluster, name) == "PrepareCommit", "the decision")
        assert committed_values(cluster, topic, 1, moving) == [b"moves"], "its next leader has it"
        cluster.kill_broker(coordinator)
        wait_until(lambda: state(cluster, name) == "PrepareCommit", "the next coordinator")
    finally:
        cluster.restart_broker(lost)
        cluster.restart_broker(coordinator)
        committing.join(2 * PATIENCE_S)
    assert not committing.is_alive()
    assert committed_values(cluster, alone, 1) == [b"waits"]
    wait_until(lambda: state(cluster, name) == "CompleteCommit", "all markers")
    wait_until_whole(cluster)


def state(cluster: RunningCluster, name: str) -> str:
    """Of its transaction, as any broker that answers has it; empty: none has."""

    def ask_each() -> Steps[str]:
        status = yield from cluster_status()
        addresses = [broker.grpc for broker in status.brokers]
        request = admin_pb2.ListTransactionsRequest(transactional_ids=[name])
        answers = yield ToAllBrokers(addresses, "ListTransactions", request)
        found = [one.state for answer in answers.values() if answer for one in answer.transactions]
        return "".join(found)

    with cluster.admin() as admin:
        return admin.carry_out(ask_each())


class Cli:
    """``quorate transactions`` of that cluster, in this process."""

    def __init__(self, cluster: RunningCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._where = ("--bootstrap-server", cluster.bootstrap)
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        """What it prints; it is expected to end with ``code``."""
        self._capsys.readouterr()
        ended = run(["transactions", *words, *self._where])
        shown = self._capsys.readouterr()
        assert ended == code, shown.err + shown.out
        return shown.out

    def json(self, *words: str) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self(*words, "--json"))


@pytest.fixture
def cli(cluster: RunningCluster, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(cluster, capsys)


class Owner(NamedTuple):
    """A producer of a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


def by_hand(cluster: RunningCluster, transactional_id: str) -> Owner:
    """A producer that says nothing of partitions to anybody."""
    transactional(cluster, "anybody")
    with cluster.admin() as admin:
        partitions = admin.describe_topics([TRANSACTIONS_TOPIC])[0].partitions
    coordinator = partitions[partition_of(transactional_id, len(partitions))].leader
    with RawClient(cluster.broker_address(coordinator)) as client:
        body = string(transactional_id) + struct.pack(">i", 60_000)
        answer = client.call(INIT_PRODUCER_ID, 1, body)
    _, error_code, producer_id, epoch = struct.unpack(">ihqh", answer)
    assert error_code == 0
    return Owner(transactional_id, producer_id, epoch)


def write(cluster: RunningCluster, topic: str, owner: Owner, value: bytes) -> tuple[int, int]:
    """(error code, base offset) of a transactional batch for the partition's leader."""
    records = encode_batch(
        [Record(0, value=value)],
        producer=(owner.producer_id, owner.epoch, 0),
        attributes=TRANSACTIONAL,
    )
    with RawClient(cluster.broker_address(leader_of(cluster, topic))) as client:
        return produce(client, topic, 0, records, transactional_id=owner.transactional_id)


def verification(cluster: RunningCluster, *, enabled: bool) -> None:
    change = ConfigChange("broker", "", {VERIFICATION: str(enabled).lower()})
    with cluster.admin() as admin:
        admin.incremental_alter_configs([change])[0].raise_for_error()


def hang(cluster: RunningCluster, topic: str, owner: Owner) -> int:
    """A transaction that its coordinator knows nothing of; where it begins."""
    outcome: tuple[int, int] = (errors_pb2.INVALID_TXN_STATE, -1)

    def is_written() -> bool:
        nonlocal outcome
        outcome = write(cluster, topic, owner, b"hangs")
        return outcome[0] == 0

    verification(cluster, enabled=False)
    try:
        wait_until(is_written, "the leader to ask nobody any more")
    finally:
        verification(cluster, enabled=True)
    return outcome[1]


def test_kip_890_a_partition_that_nobody_added_takes_no_transaction(
    cluster: RunningCluster, topic: str
) -> None:
    owner = by_hand(cluster, "never-added")
    assert write(cluster, topic, owner, b"late") == (errors_pb2.INVALID_TXN_STATE, -1)
    stranger = Owner("never-heard-of", 4_000_000_000, 0)
    code, _ = write(cluster, topic, stranger, b"late")
    assert code == errors_pb2.INVALID_PRODUCER_ID_MAPPING


def test_what_hangs_is_found_and_ended_by_an_operator(
    cluster: RunningCluster, topic: str, cli: Cli
) -> None:
    owner = by_hand(cluster, "hanging")
    start = hang(cluster, topic, owner)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(topic, b"behind", partition=0)
    assert producer.flush(PATIENCE_S) == 0

    (found,) = cli.json("find-hanging", "--topic", topic)
    assert (found["producer_id"], found["transaction_start_offset"]) == (owner.producer_id, start)
    place = ("--topic", topic, "--partition", "0", "--start-offset", str(start))
    assert "would be aborted" in cli("abort", *place, "--dry-run")
    assert len(cli.json("find-hanging")) == 1
    assert "was aborted" in cli("abort", *place)
    assert cli("find-hanging") == "no transaction hangs\n"
    assert committed_values(cluster, topic, 1) == [b"behind"]


def test_a_transaction_that_is_looked_after_is_aborted_by_its_name_alone(
    cluster: RunningCluster, topic: str, cli: Cli
) -> None:
    producer = transactional(cluster, "abandoned")
    producer.begin_transaction()
    producer.produce(topic, b"abandoned", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    shown = cli.json("describe", "abandoned")
    assert shown["state"] == "Ongoing"
    assert shown["partitions"] == [{"topic": topic, "partition": 0}]
    (listed,) = cli.json("list", "--state", "Ongoing")
    assert listed["transactional_id"] == "abandoned"
    assert cli("find-hanging") == "no transaction hangs\n"
    cli("abort", "--topic", topic, "--partition", "0", "--start-offset", "0", code=1)
    assert "was aborted" in cli("abort", "--transactional-id", "abandoned")
    successor = transactional(cluster, "abandoned")
    successor.begin_transaction()
    successor.produce(topic, b"kept", partition=0)
    successor.commit_transaction(PATIENCE_S)
    assert committed_values(cluster, topic, 1) == [b"kept"]


class Abort(NamedTuple):
    """kafka-python's ``AbortTransactionSpec``; -1: by nobody's coordinator."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


def test_kip_664_the_admin_client_of_kafka_python_sees_and_ends_it(
    cluster: RunningCluster, topic: str
) -> None:
    owner = by_hand(cluster, "seen-by-kafka-python")
    start = hang(cluster, topic, owner)
    tp = TopicPartition(topic, 0)
    with KafkaPython(cluster.bootstrap).admin() as admin:
        listed = [one for found in admin.list_transactions().values() for one in found]
        assert owner.transactional_id in {one.transactional_id for one in listed}
        described = admin.describe_transactions([owner.transactional_id])[owner.transactional_id]
        assert (described.state.value, described.producer_id) == ("Empty", owner.producer_id)
        (found,) = admin.describe_producers([tp])[tp].active_producers
        assert found.producer_id == owner.producer_id
        assert found.current_transaction_start_offset == start
        admin.abort_transaction(Abort(tp, found.producer_id, found.producer_epoch))
        (found,) = admin.describe_producers([tp])[tp].active_producers
        assert found.current_transaction_start_offset == -1
