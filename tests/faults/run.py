"""One run: the cluster, the loads, the standing readers, the events, and what must hold."""

import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from quorate.client.results import NewTopic
from tests.campaign.cluster.replica_differences import comparing_process
from tests.faults.cluster import BROKER, SETTINGS, VOTER, VOTER_SETTINGS, FaultCluster
from tests.faults.events import MOVED, Events
from tests.faults.loads import (
    TransactionalLoad,
    assert_transactions_whole,
    read_acknowledged,
    read_committed,
    wait_until_settled,
)
from tests.faults.readers import StandingReader
from tests.faults.standing_group import Place, StandingGroup
from tests.faults.switch import SlowLinksLab
from tests.support.acked_load import (
    AckedLoad,
    Acknowledged,
    acked_load,
    assert_nothing_lost,
    assert_nothing_twice,
    assert_order_kept,
)
from tests.support.failing_disks import FailingDisks
from tests.support.network_console import _enter
from tests.support.network_lab import address_of
from tests.support.three_hosts import CLUSTER_PORTS, CONSOLE, HOSTS, ThreeHosts
from tests.support.waiting import let_time_pass, wait_until

PLAIN, ONCE, PAID = "plain", "once", "paid"
PARTITIONS: Final = {PLAIN: 2, ONCE: 2, PAID: 2, MOVED: 1}
_REPLICAS: Final = {PLAIN: 3, ONCE: 3, PAID: 3, MOVED: 2}
GROUP_TOPICS: Final = (PLAIN, ONCE)
GROUP_PROTOCOLS: Final = ("classic", "consumer")
_EVERY_S: Final = 0.05
_CHECK_EVERY: Final = 20
_GO_ON_S: Final = 180.0


class FaultRun:
    """Events under load, with checks in between; ``say`` is told of each."""

    def __init__(self, cluster: FaultCluster, seed: int, say: Callable[[str], None]) -> None:
        self._cluster, self._say = cluster, say
        self._chance = random.Random(seed)
        self._events = Events(cluster, self._chance)
        self._loads: dict[str, AckedLoad] = {}
        self._transactions = TransactionalLoad(cluster.bootstrap, PAID, PARTITIONS[PAID])
        addresses = [f"{address_of(host)}:{CLUSTER_PORTS['kafka']}" for host in HOSTS]
        self._readers = [
            StandingReader(addresses, topic, partition)
            for topic, count in PARTITIONS.items()
            for partition in range(count)
        ]
        self._groups = [
            StandingGroup(cluster.bootstrap, protocol, GROUP_TOPICS, self._chance)
            for protocol in GROUP_PROTOCOLS
        ]
        self.counts: Counter[str] = Counter()
        self._topic_ids: dict[str, bytes] = {}

    def run(self, events: int, words: Sequence[str] = ()) -> None:
        """Every kind of event at least once, in random order, then any of them; only kinds that
        have one of ``words`` in their names, if there are any words.

        Raises:
            AssertionError: something that was acknowledged is not there, an offset fell, replicas
                differ, or the cluster does not go on.
        """
        self._create_topics()
        kinds = chosen(list(self._events.kinds), words)
        self._chance.shuffle(kinds)
        kinds += self._chance.choices(kinds, k=max(0, events - len(kinds)))
        with self._under_load():
            for number, kind in enumerate(kinds):
                self._say(f"{number + 1}. {kind}: {self._events.kinds[kind]()}")
                self.counts[kind] += 1
                if self.counts[kind] == 1 or number % _CHECK_EVERY == 0:
                    self._check(kind)
                let_time_pass(self._chance.uniform(0.0, 1.0), "events come at any moment")
            self._check("everything")
        self._say(f"{sum(self.counts.values())} events: {dict(self.counts)}")

    def _create_topics(self) -> None:
        with self._cluster.admin() as admin:
            for name, partitions in PARTITIONS.items():
                new = NewTopic(
                    name=name, num_partitions=partitions, replication_factor=_REPLICAS[name]
                )
                admin.create_topics([new])[0].raise_for_error()
            found = admin.describe_topics(list(PARTITIONS))
            self._topic_ids = {topic.name: topic.topic_id for topic in found}

    @contextmanager
    def _under_load(self) -> Iterator[None]:
        with ExitStack() as stack:
            for topic in (PLAIN, ONCE, MOVED):
                load = acked_load(
                    *(self._cluster.bootstrap, topic, PARTITIONS[topic]),
                    every_s=_EVERY_S,
                    repeats=32,
                    socket_timeout_ms=2_000,
                    enable_idempotence="false" if topic == PLAIN else "true",
                )
                self._loads[topic] = stack.enter_context(load)
            self._transactions.start()
            stack.callback(self._transactions.stop)
            for reader in self._readers:
                reader.start()
                stack.callback(reader.stop)
            for group in self._groups:
                group.start()
                stack.callback(group.stop)
            yield

    # -- what must hold --------------------------------------------------------------------------

    def _check(self, kind: str) -> None:
        """Wait until all is well again, and look at everything.

        Raises:
            AssertionError: after an event of this kind something does not hold.
        """
        try:
            for host in HOSTS:
                for each in (VOTER, BROKER):
                    self._cluster.start(each, host)
            self._cluster.wait_until_whole()
            for load in self._loads.values():
                load.wait_for_more(3, timeout_s=_GO_ON_S)
            self._wait_for_transactions()
            self._check_records()
            self._check_readers()
            self._check_groups()
            self._check_replicas()
        except AssertionError as error:
            raise AssertionError(f"after {kind}: {error}") from error

    def _wait_for_transactions(self) -> None:
        wanted = len(self._transactions.committed) + 2
        wait_until(
            lambda: len(self._transactions.committed) >= wanted,
            "transactions to go on",
            timeout_s=_GO_ON_S,
        )

    def _check_records(self) -> None:
        for topic, load in self._loads.items():
            acknowledged = _snapshot(load.acknowledged)
            consumed = read_acknowledged(self._cluster.bootstrap, topic, acknowledged)
            assert_nothing_lost(acknowledged, consumed)
            if topic != PLAIN:
                assert_nothing_twice(consumed)
                assert_order_kept(acknowledged)
        transactions = self._transactions
        with transactions.paused():
            wait_until_settled(self._cluster.bootstrap, PAID, PARTITIONS[PAID])
            found = read_committed(self._cluster.bootstrap, PAID, PARTITIONS[PAID])
            assert_transactions_whole(transactions.committed, transactions.aborted, found)

    def _check_readers(self) -> None:
        falls = [fall for reader in self._readers for fall in reader.falls]
        assert not falls, f"{len(falls)} offsets fell: {falls[:5]}"

    def _check_groups(self) -> None:
        ends: dict[Place, int] = {}
        for topic in GROUP_TOPICS:
            for partition, offset in list(self._loads[topic].acknowledged.offsets.values()):
                place = topic, partition
                ends[place] = max(ends.get(place, 0), offset + 1)
        for group in self._groups:
            group.check(ends)

    def _check_replicas(self) -> None:
        """Check that copies are equal below the high watermark, where all that is acknowledged
        lies."""
        ends: dict[str, int] = {}
        for topic in (PLAIN, ONCE):
            for partition, offset in list(self._loads[topic].acknowledged.offsets.values()):
                name = f"{self._topic_ids[topic].hex()}-{partition}"
                ends[name] = max(ends.get(name, 0), offset + 1)
        with (
            tempfile.TemporaryDirectory(prefix="quorate-copies-") as folder,
            comparing_process() as compare,
        ):
            copies = self._cluster.copied_folders(Path(folder))
            unreadable, differing = compare(copies, ends)
        assert not unreadable, f"damaged batches on {unreadable}"
        assert not differing, f"replicas differ: {differing}"

    def figures(self) -> str:
        """Return how much was written and looked at."""
        acknowledged = {
            topic: len(load.acknowledged.offsets) for topic, load in self._loads.items()
        }
        transactions = self._transactions
        return (
            f"acknowledged {acknowledged}, {len(transactions.committed)} transactions committed, "
            f"{len(transactions.aborted)} aborted, {len(transactions.unknown)} unknown, "
            f"{sum(reader.answers for reader in self._readers)} answers to standing readers, "
            f"{sum(reader.older_answers for reader in self._readers)} fetches with an older end; "
            + "; ".join(group.figures() for group in self._groups)
        )


def chosen(kinds: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the kinds of events that have one of the words in their names, or all without words.

    Raises:
        AssertionError: a word is in no name.
    """
    for word in words:
        assert any(word in kind for kind in kinds), f"no kind of event has {word!r}: {kinds}"
    return [kind for kind in kinds if not words or any(word in kind for word in words)]


def _snapshot(acknowledged: Acknowledged) -> Acknowledged:
    """Return what is acknowledged by now, while more is."""
    return Acknowledged(acknowledged.repeats, dict(acknowledged.offsets))


def run(
    folder: Path, seed: int, events: int, say: Callable[[str], None], words: Sequence[str] = ()
) -> None:
    """Start a cluster in namespaces and run events; the caller's process has one thread.

    ``words``: the kinds of events that are wanted, as ``chosen`` has them.

    Raises:
        AssertionError: as ``FaultRun.run``; shows the ends of all logs.
    """
    assert threading.active_count() == 1
    with SlowLinksLab([*HOSTS, CONSOLE], FailingDisks(folder)) as lab:
        hosts = ThreeHosts(lab, folder, voter_settings=VOTER_SETTINGS, broker_settings=SETTINGS)
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        with hosts:
            hosts.install()
            for host in HOSTS:
                hosts.start(VOTER, host)
                hosts.start(BROKER, host)
            _enter(lab.namespace(CONSOLE))
            cluster = FaultCluster(hosts, lab, folder)
            cluster.wait_until_whole()
            running = FaultRun(cluster, seed, say)
            try:
                running.run(events, words)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{hosts.logs()}") from error
            finally:
                say(running.figures())
        os.close(home)
