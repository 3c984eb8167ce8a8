"""Cooperative rebalancing of unmodified clients: what need not move keeps flowing, nothing is owned
by two.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from quorate.testing import RunningCluster
from quorate.testing.pytest_plugin import ClusterFactory
from tests.support.kafka_clients import Confluent
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

_log = logging.getLogger(__name__)

TOPIC = "orders"
PATIENCE_S = 150.0
POLLERS = 5


class Ledger:
    """Who owns which partition, by what members are told, and what is read of each."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: dict[int, int] = {}
        self.twice: list[str] = []
        """Partitions that were given to somebody while another had them."""
        self.moves: Counter[int] = Counter()
        """Partition → how often it was taken from somebody."""
        self.read: dict[int, list[float]] = {}
        """Partition → when records of it were read."""
        self.offsets: dict[int, set[int]] = {}

    def take(self, member: int, partitions: Sequence[TopicPartition]) -> None:
        with self.lock:
            for tp in partitions:
                if tp.partition in self.owner:
                    owner = self.owner[tp.partition]
                    self.twice.append(f"{tp.partition} of {owner} was given to {member}")
                self.owner[tp.partition] = member

    def give_up(self, member: int, partitions: Sequence[TopicPartition]) -> None:
        with self.lock:
            for tp in partitions:
                assert self.owner.pop(tp.partition) == member
                self.moves[tp.partition] += 1

    def arrived(self, partition: int, offset: int) -> None:
        with self.lock:
            self.read.setdefault(partition, []).append(time.monotonic())
            self.offsets.setdefault(partition, set()).add(offset)

    def shares(self) -> Counter[int]:
        with self.lock:
            return Counter(self.owner.values())


class Member:
    """A consumer that some thread polls until it leaves."""

    def __init__(self, number: int, cluster: RunningCluster, ledger: Ledger) -> None:
        self._ledger = ledger
        self.number = number
        self.is_leaving = False
        self.has_left = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "cooperative",
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "heartbeat.interval.ms": 500,
                "session.timeout.ms": 30_000,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(
            [TOPIC], on_assign=self._take, on_revoke=self._give_up, on_lost=self._give_up
        )

    def _take(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ledger.take(self.number, partitions)

    def _give_up(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._ledger.give_up(self.number, partitions)

    def poll(self) -> None:
        if self.is_leaving:
            self._consumer.close()
            self.has_left = True
            return
        for message in self._consumer.consume(100, 0.01):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._ledger.arrived(partition, offset)


class Crowd:
    """All members, polled by a few threads; and a producer that never pauses."""

    def __init__(self, cluster: RunningCluster, partitions: int) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self.ledger = Ledger()
        self.members: list[Member] = []
        self._count = 0
        self._ended = threading.Event()
        self.sent = Counter[int]()
        self._threads = ThreadPoolExecutor(POLLERS + 1)
        self._work = [self._threads.submit(self._poll, number) for number in range(POLLERS)]
        self._work.append(self._threads.submit(self._produce))

    def add(self, count: int) -> None:
        for _ in range(count):
            self.members.append(Member(self._count, self._cluster, self.ledger))
            self._count += 1

    def remove(self, count: int) -> None:
        leaving = [member for member in self.members if not member.is_leaving][:count]
        for member in leaving:
            member.is_leaving = True
        self.until(lambda: all(member.has_left for member in leaving), "those who leave have left")
        self.members = [member for member in self.members if not member.has_left]

    def until(self, holds: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            for each in self._work:
                assert not each.done(), each.exception()
            return holds()

        wait_until(is_so, what, timeout_s=PATIENCE_S)

    def is_shared_out(self) -> bool:
        """Every partition has an owner, and nobody has two more than another."""
        shares = self.ledger.shares()
        least, rest = divmod(self._partitions, len(self.members))
        return (
            shares.total() == self._partitions
            and len(shares) == len(self.members)
            and set(shares.values()) <= {least, least + bool(rest)}
        )

    def close(self) -> None:
        self.remove(len(self.members))
        self._ended.set()
        self._threads.shutdown()
        for each in self._work:
            each.result()

    def _poll(self, number: int) -> None:
        while not self._ended.wait(0.005):
            for member in self.members:
                if member.number % POLLERS == number and not member.has_left:
                    member.poll()

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._cluster.bootstrap, "linger.ms": 20, "log_level": 0}
        )
        while not self._ended.wait(0.1):
            for partition in range(self._partitions):
                producer.produce(TOPIC, b"record", partition=partition)
            self.sent.update(range(self._partitions))
            assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("members", "newcomers", "partitions"),
    [
        (4, 2, 24),
        pytest.param(
            40, 10, 200, marks=[pytest.mark.slow, pytest.mark.timeout(600)], id="50-of-200"
        ),
    ],
)
def test_what_need_not_move_keeps_flowing_and_nothing_is_owned_twice(
    quorate_cluster: ClusterFactory, members: int, newcomers: int, partitions: int
) -> None:
    cluster = quorate_cluster(brokers=3, config={"group.initial.rebalance.delay.ms": 500})
    Confluent(cluster.bootstrap).create(TOPIC, partitions, replication_factor=3)
    crowd = Crowd(cluster, partitions)
    ledger = crowd.ledger
    try:
        began = time.monotonic()
        crowd.add(members)
        crowd.until(crowd.is_shared_out, f"{members} members share {partitions} partitions")
        first_s = time.monotonic() - began
        crowd.until(lambda: len(ledger.read) == partitions, "records of every partition")

        joined_s, joined_gap_s = rebalance(crowd, partitions, lambda: crowd.add(newcomers))
        left_s, left_gap_s = rebalance(crowd, partitions, lambda: crowd.remove(newcomers))

        sent = dict(crowd.sent)
        crowd.until(
            lambda: all(len(ledger.offsets[p]) >= count for p, count in sent.items()),
            "every record that was sent before",
        )
        assert not ledger.twice
        _log.info(
            "%d members share %d partitions after %.1f s; %d more after %.1f s, with no pause of "
            "what stayed longer than %.2f s; after as many left, after %.1f s (%.2f s)",
            members,
            partitions,
            first_s,
            newcomers,
            joined_s,
            joined_gap_s,
            left_s,
            left_gap_s,
        )
    finally:
        crowd.close()
    assert not ledger.twice


def rebalance(crowd: Crowd, partitions: int, change: Callable[[], None]) -> tuple[float, float]:
    """Seconds until all is shared out again, and the longest pause of a partition that stayed."""
    ledger = crowd.ledger
    owners, moves = dict(ledger.owner), Counter(ledger.moves)
    leaving_before = Counter(owners.values())
    began = time.monotonic()
    change()
    crowd.until(crowd.is_shared_out, "partitions are shared out again")
    ended = time.monotonic()
    stayed = [p for p in range(partitions) if ledger.moves[p] == moves[p]]
    assert [ledger.owner[p] for p in stayed] == [owners[p] for p in stayed]
    fair = partitions // max(len(leaving_before), len(crowd.ledger.shares()))
    assert len(stayed) >= partitions - (fair + 1) * abs(
        len(leaving_before) - len(crowd.ledger.shares())
    ), "no more moves than must"
    # Each was read after the rebalance began, before it ended, or right now: none waits for it.
    crowd.until(
        lambda: all(ledger.read[p][-1] > ended for p in stayed), "what stayed is still read"
    )
    return ended - began, max(longest_pause(ledger.read[p], began, ended) for p in stayed)


def longest_pause(read: Sequence[float], began: float, ended: float) -> float:
    """Seconds without a record, of those that touch the time between."""
    times = sorted(read)
    return max(
        (
            later - earlier
            for earlier, later in pairwise(times)
            if later > began and earlier < ended
        ),
        default=0.0,
    )
