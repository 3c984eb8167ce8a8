"""Workers of a share group while brokers are killed and paused, and what comes of it."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from quorate.client.results import NewTopic
from quorate.client.security import ClientSecurity
from quorate.client.share_groups import ShareGroups
from quorate.testing import RunningCluster
from tests.queues.history import Record
from tests.queues.ledger import Ledger
from tests.queues.raw_workers import RawWorkers
from tests.queues.workers import Worker
from tests.support.waiting import let_time_pass, wait_until
from tests.support.whole_cluster import wait_until_whole

_LOCK_S: Final = 5
_SESSION_S: Final = 3
_PATIENCE_S: Final = 120.0
_PATIENCE_MS: Final = 30_000
CONFIG: Final = {
    "broker.session.timeout.ms": _SESSION_S * 1000,
    "offsets.topic.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "group.share.record.lock.duration.ms": _LOCK_S * 1000,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.assignment.interval.ms": 100,
    "group.share.delivery.count.limit": 10,
}


def begin_at_the_earliest(bootstrap: str, group_id: str) -> None:
    """Have a share group begin with the first record of each partition."""
    configure(bootstrap, group_id, {"share.auto.offset.reset": "earliest"})


def configure(bootstrap: str, group_id: str, values: Mapping[str, str]) -> None:
    """Set keys of a share group."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for outcome in admin.incremental_alter_configs([resource]).values():
        outcome.result()


_UNDER_WAY_MAX: Final = 10_000
"""The most records that a producer has under way: its queue holds 100,000."""


def create(cluster: RunningCluster, name: str, partitions: int, **configs: str) -> None:
    """Create a topic with three replicas."""
    with cluster.admin() as admin:
        new = NewTopic(name=name, num_partitions=partitions, replication_factor=3, configs=configs)
        admin.create_topics([new])[0].raise_for_error()


def fill(bootstrap: str, topic: str, records: int) -> list[Record]:
    """Produce records, and return where they are."""
    found: list[Record] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        found.append(Record(message.partition(), message.offset()))  # type: ignore[attr-defined]

    # Small batches: a broker hands out whole ones.
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "batch.num.messages": 10}
    producer = Producer(settings)
    for number in range(records):
        producer.produce(topic, str(number).encode(), on_delivery=delivered)
        while len(producer) > _UNDER_WAY_MAX:
            producer.poll(0.1)
    producer.flush()
    assert len(found) == records
    return found


def _is_down_to(ledger: Ledger, left: int) -> bool:
    """Return whether so few records are left. Those of unknown outcome may never come again."""
    return ledger.left - ledger.unanswered <= left


class Campaign:
    """Workers take all records of a topic while brokers are killed or paused."""

    def __init__(
        self, cluster: RunningCluster, topic: str, choice: random.Random, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._choice = choice
        self._say = say
        self.strikes: Counter[str] = Counter()

    def run(self, *, records: int, raw: int, workers: int, kills: int) -> Ledger:
        """Return what the workers noted: ``raw`` ones with times, and others with a client
        library."""
        bootstrap, group_id = self._cluster.bootstrap, f"workers-of-{self._topic}"
        begin_at_the_earliest(bootstrap, group_id)
        ledger = Ledger(fill(bootstrap, self._topic, records))
        share = records // (kills + 1)
        with ExitStack() as stack:
            stack.enter_context(
                RawWorkers(
                    bootstrap, group_id, self._topic, raw, ledger, self._choice.getrandbits(32)
                )
            )
            for number in range(workers):
                name = f"worker-{number}"
                stack.enter_context(Worker(bootstrap, group_id, self._topic, name, ledger))
            for kill in range(1, kills + 1):
                goal = records - share * kill
                wait_until(
                    partial(_is_down_to, ledger, goal),
                    lambda: f"records are settled: {ledger.left} are left",
                    timeout_s=_PATIENCE_S,
                )
                assert ledger.left, "all was done before the kill: there are too few records"
                self._strike()
                if kill < kills:
                    wait_until_whole(self._cluster)
                self._say(f"{kill} of {kills} strikes, {figures(ledger)}")
            self._finish(ledger)
        self._check_lag(group_id)
        return ledger

    def _check_lag(self, group_id: str) -> None:
        """Check that the share coordinator has every record as settled, also those that nobody was
        told about.

        Raises:
            AssertionError: it has not.
        """
        groups = ShareGroups(self._cluster.bootstrap, ClientSecurity(), _PATIENCE_MS)
        wait_until(
            lambda: all(one.lag == 0 for one in groups.offsets(group_id)),
            lambda: f"no lag: {groups.offsets(group_id)}",
            timeout_s=2 * _LOCK_S,
        )

    def _strike(self) -> None:
        kind = self._choice.choices(["kill", "pause"], weights=[4, 1])[0]
        broker_id = self._choice.choice(self._cluster.broker_ids)
        if kind == "kill":
            self._cluster.kill_broker(broker_id)
            let_time_pass(self._choice.random() * 0.5, "others may take over meanwhile")
            self._cluster.restart_broker(broker_id)
        else:
            self._cluster.pause_broker(broker_id)
            let_time_pass(self._choice.uniform(0.5, 2 * _SESSION_S), "its session may end")
            self._cluster.resume_broker(broker_id)
        self.strikes[kind] += 1

    def _finish(self, ledger: Ledger) -> None:
        """Wait until all is settled, and for a while longer: what nobody was told about may come
        again."""

        def is_over() -> bool:
            silent_s = time.monotonic() - ledger.last_delivery_s
            return ledger.is_complete and (not ledger.left or silent_s > 2 * _LOCK_S)

        try:
            wait_until(is_over, "all is settled", timeout_s=_PATIENCE_S)
        except AssertionError as error:  # The ledger knows which records.
            self._say(str(error))


def figures(ledger: Ledger) -> str:
    """Return how much was handed out, and how much of it the checks judge."""
    return (
        f"{ledger.handed_out} deliveries, {ledger.judged} with a known leader epoch, "
        f"{ledger.redelivered} again, {ledger.left} records not settled, "
        f"{ledger.unanswered} of unknown outcome"
    )
