"""The cluster that all tests of a run share, and its topics."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from quorate.client.results import ConfigEntity
from quorate.testing import RunningCluster
from quorate.testing.fast_settings import FAST_SETTINGS
from quorate.testing.group_consumers import GroupConsumers
from quorate.testing.pytest_plugin import TopicFactory, unique_name

pytestmark = pytest.mark.integration

TWO_MODULES = """
import json, os, pathlib

def test_{number}(shared_quorate_cluster, quorate_topic):
    topic = quorate_topic(partitions=2)
    with shared_quorate_cluster.admin() as admin:
        assert topic in admin.list_topics()
        found = admin.cluster_status().cluster_id
    pathlib.Path("{folder}", os.environ["PYTEST_XDIST_WORKER"]).write_text(found)
"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_at_once(
    protocol: str,
    shared_quorate_cluster: RunningCluster,
    quorate_topic: TopicFactory,
    quorate_group: str,
) -> None:
    bootstrap, topic = shared_quorate_cluster.bootstrap, quorate_topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": quorate_group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"one"
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_of_a_test_goes_on_where_its_group_has_committed(
    protocol: str,
    shared_quorate_cluster: RunningCluster,
    quorate_topic: TopicFactory,
    quorate_consumer: GroupConsumers,
) -> None:
    topic = quorate_topic()
    producer = Producer({"bootstrap.servers": shared_quorate_cluster.bootstrap})
    for value in (b"one", b"two"):
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    for value in (b"one", b"two"):
        consumer = quorate_consumer(
            topic, config={"group.protocol": protocol, "enable.auto.commit": False}
        )
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == value
        consumer.commit(message=message, asynchronous=False)
        consumer.close()


def test_nothing_makes_a_test_wait(shared_quorate_cluster: RunningCluster) -> None:
    with shared_quorate_cluster.admin() as admin:
        (described,) = admin.describe_configs([ConfigEntity("broker", "1", list(FAST_SETTINGS))])
    assert {one.name: one.value for one in described.entries} == {
        key: str(value) for key, value in FAST_SETTINGS.items()
    }


def test_names_are_used_once_and_show_the_test() -> None:
    names = {unique_name("test_a[x y/ü1]") for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("test_a-x-y-1-") for name in names)
    assert len(unique_name("x" * 300)) < 120


@pytest.mark.slow
def test_workers_share_one_cluster(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    for number in (1, 2, 3, 4):
        module = tmp_path / f"test_module_{number}.py"
        module.write_text(TWO_MODULES.format(number=number, folder=seen))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "each", "-p", "no:randomly", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    workers = list(seen.iterdir())
    assert len(workers) == 2
    assert len({worker.read_text() for worker in workers}) == 1
