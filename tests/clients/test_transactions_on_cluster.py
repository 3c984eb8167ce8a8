"""Transactions of unmodified clients: committed, aborted, fenced, timed out, coordinators lost."""

import time

import aiokafka
import confluent_kafka
import pytest

from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC, partition_of
from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.kafka_clients import PATIENCE_S, Confluent, KafkaPython
from tests.support.waiting import wait_until
from tests.support.whole_cluster import wait_until_whole

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(module_quorate_cluster: ClusterFactory) -> RunningCluster:
    return module_quorate_cluster(
        brokers=3,
        config={
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
            "group.initial.rebalance.delay.ms": 0,
        },
    )


@pytest.fixture
def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> str:
    """A topic of this test alone."""
    name = request.node.originalname.removeprefix("test_")
    Confluent(cluster.bootstrap).create(name, PARTITIONS, replication_factor=3)
    return str(name)


def producer(
    cluster: RunningCluster, transactional_id: str, **more: str | int
) -> confluent_kafka.Producer:
    found = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
    )
    found.init_transactions(PATIENCE_S)
    return found


def write(found: confluent_kafka.Producer, topic: str, name: str) -> set[bytes]:
    """One record for each partition; all are in the log on return."""
    values = [f"{name}-{partition}".encode() for partition in range(PARTITIONS)]
    for partition, value in enumerate(values):
        found.produce(topic, value, partition=partition)
    assert found.flush(PATIENCE_S) == 0
    return set(values)


def read(cluster: RunningCluster, topic: str, isolation: str = "read_committed") -> set[bytes]:
    """Everything up to the end of each partition, as it is shown at that isolation level."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline_s, f"{topic}: partitions {ended} alone came to an end"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            value = message.value()
            assert value is not None
            values.append(value)
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            partition = message.partition()
            assert partition is not None
            ended.add(partition)
    consumer.close()
    assert len(values) == len(set(values)), "nothing twice"
    return set(values)


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    cluster: RunningCluster, topic: str
) -> None:
    found = producer(cluster, "pay")
    written = {}
    for name, commit in (("first", True), ("second", False), ("third", True)):
        found.begin_transaction()
        written[name] = write(found, topic, name)
        if name == "first":
            assert read(cluster, topic) == set(), "not before it is committed"
        (found.commit_transaction if commit else found.abort_transaction)(PATIENCE_S)
    wait_until(
        lambda: read(cluster, topic) == written["first"] | written["third"],
        "markers in all partitions",
        timeout_s=PATIENCE_S,
    )
    assert read(cluster, topic, "read_uncommitted") == set().union(*written.values())


def test_a_newer_producer_shuts_the_older_one_out(cluster: RunningCluster, topic: str) -> None:
    old = producer(cluster, "fenced")
    old.begin_transaction()
    write(old, topic, "old")
    new = producer(cluster, "fenced")
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        old.commit_transaction(PATIENCE_S)
    error = refused.value.args[0]
    assert error.fatal()
    assert error.code() == confluent_kafka.KafkaError._FENCED
    new.begin_transaction()
    values = write(new, topic, "new")
    new.commit_transaction(PATIENCE_S)
    wait_until(
        lambda: read(cluster, topic) == values, "the newer one's alone", timeout_s=PATIENCE_S
    )


def test_a_transaction_that_takes_too_long_is_aborted(cluster: RunningCluster, topic: str) -> None:
    found = producer(cluster, "slow", transaction_timeout_ms=1_000)
    found.begin_transaction()
    write(found, topic, "late")
    after = Confluent(cluster.bootstrap)
    after.produce(topic, {partition: [b"%d" % partition] for partition in range(PARTITIONS)})
    wait_until(
        lambda: read(cluster, topic) == {b"0", b"1", b"2"},
        "nobody waits for it any more",
        timeout_s=PATIENCE_S,
    )
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        found.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )


def test_a_lost_coordinator_loses_no_transaction(cluster: RunningCluster, topic: str) -> None:
    """Its coordinator is killed while a transaction is open, and another goes on with it."""
    found = producer(cluster, "survivor")
    found.begin_transaction()
    written = write(found, topic, "open")
    wait_until_whole(cluster)
    killed = coordinator_of(cluster, "survivor")
    cluster.kill_broker(killed)
    try:
        found.commit_transaction(PATIENCE_S)
        assert coordinator_of(cluster, "survivor") != killed
        wait_until(
            lambda: read(cluster, topic) == written,
            "committed by the next coordinator",
            timeout_s=PATIENCE_S,
        )
    finally:
        cluster.restart_broker(killed)
        wait_until_whole(cluster)


def test_a_deleted_topic_does_not_hold_its_transaction_up(
    cluster: RunningCluster, topic: str
) -> None:
    client = Confluent(cluster.bootstrap)
    client.create("deleted", PARTITIONS, replication_factor=3)
    found = producer(cluster, "deleter")
    found.begin_transaction()
    written = write(found, topic, "kept")
    write(found, "deleted", "lost")
    with cluster.admin() as admin:
        admin.delete_topics(["deleted"])
    found.commit_transaction(PATIENCE_S)
    wait_until(
        lambda: read(cluster, topic) == written,
        "the others have their markers",
        timeout_s=PATIENCE_S,
    )
    found.begin_transaction()
    written |= write(found, topic, "next")
    found.commit_transaction(PATIENCE_S)
    wait_until(
        lambda: read(cluster, topic) == written,
        "nothing is left to be completed",
        timeout_s=PATIENCE_S,
    )


@pytest.mark.slow
def test_transactions_outlive_the_whole_cluster(cluster: RunningCluster, topic: str) -> None:
    """kill -9 of all brokers, with one transaction open and one just decided."""
    going_on, decided = producer(cluster, "open"), producer(cluster, "decided")
    for found in (going_on, decided):
        found.begin_transaction()
    written = write(going_on, topic, "open") | write(decided, topic, "decided")
    decided.commit_transaction(PATIENCE_S)
    for broker_id in cluster.broker_ids:
        cluster.kill_broker(broker_id)
    for broker_id in cluster.broker_ids:
        cluster.restart_broker(broker_id, wait=False)
    wait_until_whole(cluster)
    going_on.commit_transaction(PATIENCE_S)
    wait_until(lambda: read(cluster, topic) == written, "both are committed", timeout_s=PATIENCE_S)
    for found in (going_on, decided):
        found.begin_transaction()
        write(found, topic, "aborted")
        found.abort_transaction(PATIENCE_S)
    wait_until(
        lambda: read(cluster, topic) == written, "what is aborted is not seen", timeout_s=PATIENCE_S
    )


def coordinator_of(cluster: RunningCluster, transactional_id: str) -> int:
    with cluster.admin() as admin:
        partitions = admin.describe_topics([TRANSACTIONS_TOPIC])[0].partitions
    return partitions[partition_of(transactional_id, len(partitions))].leader


async def test_transactions_of_aiokafka(cluster: RunningCluster, topic: str) -> None:
    found = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="aio")
    await found.start()
    try:
        async with found.transaction():
            await found.send_and_wait(topic, b"committed", partition=0)
        await found.begin_transaction()
        await found.send_and_wait(topic, b"aborted", partition=0)
        await found.abort_transaction()
    finally:
        await found.stop()
    wait_until(
        lambda: read(cluster, topic) == {b"committed"},
        "what was committed alone",
        timeout_s=PATIENCE_S,
    )


def test_transactions_of_kafka_python(cluster: RunningCluster, topic: str) -> None:
    found = KafkaPython(cluster.bootstrap).transactional("python")
    try:
        found.init_transactions()
        for value, end in (
            (b"committed", found.commit_transaction),
            (b"aborted", found.abort_transaction),
            (b"also", found.commit_transaction),
        ):
            found.begin_transaction()
            found.send(topic, value, partition=0).get(PATIENCE_S)
            end()
    finally:
        found.close()
    wait_until(
        lambda: read(cluster, topic) == {b"committed", b"also"},
        "what was committed alone",
        timeout_s=PATIENCE_S,
    )


def test_what_is_consumed_counts_with_what_was_made_of_it(
    cluster: RunningCluster, topic: str
) -> None:
    """Consume, transform, produce: offsets and records are committed together, or neither is."""
    source = f"{topic}_source"
    Confluent(cluster.bootstrap).create(source, 1, replication_factor=3)
    Confluent(cluster.bootstrap).produce(source, {0: [b"a", b"b", b"c", b"d"]})
    found = producer(cluster, "copier")
    made: list[bytes] = []
    for commit in (False, True, True):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([source])
        taken = [message.value() for message in _take(consumer, 2)]
        found.begin_transaction()
        for value in taken:
            assert value is not None
            found.produce(topic, value.upper(), partition=0)
        found.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            PATIENCE_S,
        )
        if commit:
            found.commit_transaction(PATIENCE_S)
            made += [value.upper() for value in taken if value]
        else:
            found.abort_transaction(PATIENCE_S)
        consumer.close()
    assert made == [b"A", b"B", b"C", b"D"], "what was aborted was consumed again"
    wait_until(lambda: read(cluster, topic) == set(made), "each once", timeout_s=PATIENCE_S)


def _take(consumer: confluent_kafka.Consumer, count: int) -> list[confluent_kafka.Message]:
    taken: list[confluent_kafka.Message] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(taken) < count:
        assert time.monotonic() < deadline_s, f"{len(taken)} of {count} records"
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            taken.append(message)
    return taken
