"""The contestants: three brokers of each, on this machine, alone with their own defaults."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench._nodes import pids
from bench.peers.kafka import KafkaBrokers, KafkaInstallation, announced, find_kafka
from bench.produce_matrix.workload import Flush, Workload
from quorate.testing import running_cluster

QUORATE: Final = "quorate"
KAFKA: Final = "Kafka"
BROKERS: Final = 3
_TIMEOUT_S: Final = 60.0
_SETTLE_S: Final = 3.0

Settings = Mapping[str, str | int]
NO_SETTINGS: Final[Settings] = MappingProxyType({})


class System(NamedTuple):
    """A running cluster; ``pids``: of all its processes, also those that keep its metadata."""

    name: str
    bootstrap: str
    pids: list[int]

    def create_topic(self, topic: str, workload: Workload) -> None:
        """Make the topic; Kafka syncs by a setting of the topic, Quorate by one of the broker."""
        settings = {}
        if self.name == KAFKA and workload.flush == "sync":
            settings["flush.messages"] = "1"
        new = NewTopic(topic, workload.partitions, workload.replicas, config=settings)
        admin = self._admin()
        admin.create_topics([new], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)

    def wait_for_brokers(self) -> None:
        """Wait until clients know all brokers.

        Raises:
            RuntimeError: not in time.
        """
        for _ in range(100):
            if len(self._admin().list_topics(timeout=_TIMEOUT_S).brokers) == BROKERS:
                return
        raise RuntimeError(f"{self.name}: not all of {BROKERS} brokers are there")

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


@contextmanager
def quorate(flush: Flush, settings: Settings = NO_SETTINGS) -> Iterator[System]:
    """Three brokers and three voters, each a process of its own as in production: forked ones
    share memory."""
    config = {"log.flush": flush, **settings}
    with running_cluster(brokers=BROKERS, voters=3, config=config, forked=False) as cluster:
        processes = [pid for of_kind in pids(cluster).values() for pid in of_kind]
        yield System(QUORATE, cluster.bootstrap, processes)


@contextmanager
def kafka(installation: KafkaInstallation, settings: Settings = NO_SETTINGS) -> Iterator[System]:
    """Three brokers that are controllers too, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="kafka-bench-") as folder:
        brokers = KafkaBrokers(Path(folder), installation, settings)
        try:
            brokers.start()
            system = System(KAFKA, brokers.bootstrap, brokers.pids)
            system.wait_for_brokers()
            yield system
        finally:
            brokers.stop()


@contextmanager
def topics_for(
    name: str, workload: Workload, systems: Sequence[System], count: int = 1
) -> Iterator[list[str]]:
    """Topics in every system, that have settled: to make 100 partitions costs Kafka seconds.

    They are gone afterwards: the loads of a whole run would fill a disk.
    """
    topics = [f"{name}-{number}" for number in range(count)]
    for system in systems:
        for topic in topics:
            system.create_topic(topic, workload)
    time.sleep(_SETTLE_S)
    yield topics
    for system in systems:
        for topic in topics:
            system.delete_topic(topic)


@contextmanager
def kafka_if_installed(settings: Settings = NO_SETTINGS) -> Iterator[list[System]]:
    """Kafka alone, where ``KAFKA_HOME`` says that it is here; else nobody. Prints which."""
    installation = announced(find_kafka, "Kafka is left out")
    if installation is None:
        yield []
        return
    with kafka(installation, settings) as system:
        yield [system]
