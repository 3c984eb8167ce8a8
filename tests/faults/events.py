"""Faults of every kind, one after the other; what an event stops, it starts again."""

import random
from collections.abc import Callable, Sequence

from quorate.client.errors import QuorateError
from quorate.client.results import NewTopic, PartitionName
from tests.faults.cluster import BROKER, VOTER, FaultCluster
from tests.support.acked_load import acked_load, assert_nothing_lost, consume_all
from tests.support.failing_disks import fill_disk, free_disk
from tests.support.three_hosts import HOSTS
from tests.support.waiting import let_time_pass, wait_until

MOVED, PASSING = "moved", "passing"


class Events:
    """The events by kind; each returns what it did."""

    def __init__(self, cluster: FaultCluster, chance: random.Random) -> None:
        self._cluster, self._chance = cluster, chance
        assert cluster.lab.disks is not None
        self._disks = cluster.lab.disks
        self._passed = 0
        self.kinds: dict[str, Callable[[], str]] = {
            "kill -9 of brokers": self._kill_brokers,
            "kill -9 of voters": self._kill_voters,
            "kill -9 of a host": self._kill_host,
            "SIGSTOP of a broker": lambda: self._pause(BROKER),
            "SIGSTOP of a voter": lambda: self._pause(VOTER),
            "controlled shutdown": self._shut_down,
            "rolling restart": self._roll,
            "kill during reassignment": self._kill_while_moving,
            "deletion and re-creation": self._create_again,
            "cut, both ways": self._cut,
            "cut, one way": self._cut_one_way,
            "host unplugged": self._unplug,
            "delay of 100 ms": lambda: self._slow_down(100, 0.0),
            "delay of 500 ms": lambda: self._slow_down(500, 0.0),
            "loss of 10 %": lambda: self._slow_down(0, 0.1),
            "full disk": self._fill_disk,
        }
        if self._disks.can_fail:
            self.kinds["EIO"] = self._fail_disk

    # -- processes -------------------------------------------------------------------------------

    def _kill_brokers(self) -> str:
        victims = self._some(HOSTS, self._chance.choice([1, 1, 1, 2, 3]))
        self._kill_and_start([(BROKER, host) for host in victims])
        return f"brokers {victims}"

    def _kill_voters(self) -> str:
        victims = self._some(HOSTS, self._chance.choice([1, 1, 2, 3]))
        self._kill_and_start([(VOTER, host) for host in victims])
        return f"voters {victims}"

    def _kill_host(self) -> str:
        host = self._chance.choice(HOSTS)
        self._kill_and_start([(VOTER, host), (BROKER, host)])
        return f"host {host}"

    def _kill_and_start(self, victims: Sequence[tuple[str, int]]) -> None:
        for victim in victims:
            self._cluster.kill(*victim)
        self._wait(0.0, 2.5)
        for victim in victims:
            self._cluster.start(*victim)

    def _pause(self, kind: str) -> str:
        host, pause_s = self._chance.choice(HOSTS), self._chance.uniform(0.3, 5.0)
        self._cluster.pause(kind, host)
        let_time_pass(pause_s, "some pauses outlast a session, others do not")
        self._cluster.resume(kind, host)
        return f"{kind} {host} for {pause_s:.1f} s"

    def _shut_down(self) -> str:
        host = self._chance.choice(HOSTS)
        self._cluster.stop(BROKER, host)
        self._wait(0.0, 2.0)
        self._cluster.start(BROKER, host)
        return f"broker {host}"

    def _roll(self) -> str:
        for host in HOSTS:
            self._cluster.wait_until_whole()
            self._cluster.stop(BROKER, host)
            self._cluster.start(BROKER, host)
        return "all brokers"

    # -- topics ----------------------------------------------------------------------------------

    def _kill_while_moving(self) -> str:
        replicas = self._some(HOSTS, 2)
        victim = self._chance.choice(HOSTS)
        try:
            with self._cluster.admin() as admin:
                admin.alter_partition_reassignments(
                    {PartitionName(topic=MOVED, partition=0): replicas}
                )
        except QuorateError as error:
            return f"not begun: {error}"
        self._wait(0.0, 0.3)
        self._kill_and_start([(BROKER, victim)])
        return f"{MOVED}-0 to {replicas}, broker {victim} killed"

    def _create_again(self) -> str:
        """A topic comes with every record that is acknowledged, and goes with all of them."""
        self._passed += 1
        new = NewTopic(name=PASSING, num_partitions=2, replication_factor=3)
        wait_until(lambda: self._created(new), "the topic to be created", timeout_s=30.0)
        with acked_load(self._cluster.bootstrap, PASSING, 2, socket_timeout_ms=2_000) as load:
            load.wait_for_more(10, timeout_s=60.0)
            acknowledged = load.stop()
        consumed = consume_all(self._cluster.bootstrap, PASSING, 2)
        assert_nothing_lost(acknowledged, consumed)
        stray = consumed.keys() - acknowledged.offsets.keys()
        assert len(stray) <= len(acknowledged.failures), f"records of an earlier topic: {stray}"
        victim = self._chance.choice(HOSTS)
        is_away = self._chance.random() < 0.5
        if is_away:
            self._cluster.kill(BROKER, victim)
        wait_until(self._deleted, "the topic to be deleted", timeout_s=30.0)
        self._cluster.start(BROKER, victim)
        return f"for the {self._passed}. time{f', broker {victim} away' if is_away else ''}"

    def _created(self, new: NewTopic) -> bool:
        with self._cluster.admin() as admin:
            admin.create_topics([new])
            return new.name in {topic.name for topic in admin.describe_topics()}

    def _deleted(self) -> bool:
        with self._cluster.admin() as admin:
            admin.delete_topics([PASSING])
            return PASSING not in {topic.name for topic in admin.describe_topics()}

    # -- links -----------------------------------------------------------------------------------

    def _cut(self) -> str:
        one, other = self._some(HOSTS, 2)
        return self._while_cut(lambda: self._cluster.lab.cut(one, other), f"{one} and {other}")

    def _cut_one_way(self) -> str:
        one, other = self._some(HOSTS, 2)
        cut = self._cluster.lab.cut_one_way
        return self._while_cut(lambda: cut(one, other), f"from {one} to {other}")

    def _unplug(self) -> str:
        host = self._chance.choice(HOSTS)
        return self._while_cut(lambda: self._cluster.lab.unplug(host), f"host {host}")

    def _slow_down(self, delay_ms: int, loss: float) -> str:
        def slow_down() -> None:
            self._cluster.lab.slow_down(HOSTS, delay_ms, loss)

        return self._while_cut(slow_down, "between all hosts")

    def _while_cut(self, cut: Callable[[], None], what: str) -> str:
        seconds = self._chance.uniform(1.0, 8.0)
        cut()
        let_time_pass(seconds, "the links are cut or slow")
        self._cluster.lab.heal()
        return f"{what} for {seconds:.1f} s"

    # -- disks -----------------------------------------------------------------------------------

    def _fill_disk(self) -> str:
        host = self._chance.choice(HOSTS)
        pid = self._cluster.pid(BROKER, host)
        fill_disk(pid)
        self._wait(1.0, 4.0)
        if self._cluster.runs(BROKER, host):
            free_disk(pid)
        self._cluster.start(BROKER, host)
        return f"broker {host}"

    def _fail_disk(self) -> str:
        """A broker whose disk fails ends, and says why."""
        host = self._chance.choice(HOSTS)
        self._disks.fail(host)
        try:
            wait_until(
                lambda: not self._cluster.runs(BROKER, host),
                lambda: f"broker {host} to end\n{self._cluster.hosts.logs()}",
                timeout_s=30.0,
            )
        finally:
            self._disks.heal(host)
        assert "cannot write log directory" in self._cluster.said(BROKER, host)
        self._cluster.start(BROKER, host)
        return f"broker {host}"

    def _some(self, among: Sequence[int], count: int) -> list[int]:
        return self._chance.sample(list(among), count)

    def _wait(self, least_s: float, most_s: float) -> None:
        let_time_pass(self._chance.uniform(least_s, most_s), "some are back before others notice")
