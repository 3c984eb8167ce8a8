"""The project whose tests ``bench/fixtures.py`` runs, with fixtures as in a user's project."""

CONFTEST = """
import json, pathlib, time

durations, begun = {}, []


def pytest_runtest_call(item):
    begun.append(time.monotonic())


def pytest_runtest_logreport(report):
    durations[report.nodeid] = durations.get(report.nodeid, 0) + report.duration


def pytest_sessionfinish(session):
    figures = {"first_test": begun[0], "durations": durations}
    pathlib.Path(__file__).with_name("figures.json").write_text(json.dumps(figures))
"""
"""It writes down when the first test began, and how long each test took with its fixtures."""

TESTS = """
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

ROUNDS = range(@ROUNDS@)


@pytest.fixture(scope="session")
def producer(shared_quorate_cluster):
    return Producer({"bootstrap.servers": shared_quorate_cluster.bootstrap, "linger.ms": 0})


def read_one(consumer):
    message = consumer.poll(20)
    assert message is not None and message.value() == b"one", message
    consumer.close()


def settings(cluster, group):
    return {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }


def test_first(shared_quorate_cluster):
    pass


@pytest.mark.parametrize("round", ROUNDS)
def test_topic(round, quorate_topic):
    assert quorate_topic()


@pytest.mark.parametrize("round", ROUNDS)
def test_produce(round, quorate_topic, producer):
    producer.produce(quorate_topic(), b"one")
    assert producer.flush(20) == 0


@pytest.mark.parametrize("round", ROUNDS)
def test_read(round, quorate_topic, producer, shared_quorate_cluster):
    topic = quorate_topic()
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0
    consumer = Consumer(settings(shared_quorate_cluster, "none"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    read_one(consumer)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("round", ROUNDS)
def test_group(round, protocol, quorate_topic, quorate_group, producer, shared_quorate_cluster):
    topic = quorate_topic()
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0
    of_group = settings(shared_quorate_cluster, quorate_group)
    consumer = Consumer({**of_group, "group.protocol": protocol})
    consumer.subscribe([topic])
    read_one(consumer)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("round", ROUNDS)
def test_consumer(round, protocol, quorate_topic, producer, quorate_consumer):
    topic = quorate_topic()
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0
    read_one(quorate_consumer(topic, config={"group.protocol": protocol}))
"""

ALONE = """
def test_first():
    pass
"""
