"""When a whole cluster does what it should: all brokers tell of it, all partitions take records."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from bench._kafka_probe import BrokerProbe, Leaders, Replica

A = TypeVar("A")
R = TypeVar("R")

Holds = Callable[[str, list[int]], bool]
"""Whether a broker says of a topic, by its leaders per partition, what is waited for."""

_PAUSE_S: Final = 0.005


class ClusterProbe:
    """Asks several brokers at once, each in a thread. Times are ``time.time()``, in seconds."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        """``addresses``: Kafka addresses by broker id."""
        self._probes = {broker: BrokerProbe(address) for broker, address in addresses.items()}

    def __enter__(self) -> "ClusterProbe":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for probe in self._probes.values():
            probe.close()

    def leaders(self, topics: Sequence[str]) -> Leaders:
        """Return the leaders as the first broker that answers tells them; none if no broker
        answers."""
        for probe in self._probes.values():
            try:
                return probe.leaders(topics)
            except OSError:
                continue
        return {}

    def until_told(self, topics: Sequence[str], holds: Holds, timeout_s: float) -> float:
        """When the last of the brokers said of every topic what ``holds``.

        One topic is asked for until it holds, and only then the rest: asking for everything all
        the time would be most of what the brokers do.

        Raises:
            TimeoutError: not in time; names the broker and a topic.
        """
        deadline = time.time() + timeout_s

        def watch(probe: BrokerProbe) -> float:
            missing = list(topics)
            while missing:
                if _told(probe, missing[-1:], holds):
                    told = _told(probe, missing, holds)
                    missing = [topic for topic in missing if topic not in told]
                elif time.time() > deadline:
                    raise TimeoutError(f"{probe.address} does not tell of {missing[-1]}")
                else:
                    time.sleep(_PAUSE_S)
            return time.time()

        return max(in_threads(watch, list(self._probes.values())))

    def until_accepting(self, topics: Mapping[str, int], timeout_s: float) -> float:
        """When every partition took a record with acks=all; ``topics``: partitions by name.

        Raises:
            TimeoutError: not in time; says how many are missing.
        """
        deadline = time.time() + timeout_s
        missing = {Replica(topic, n) for topic, count in topics.items() for n in range(count)}
        while missing:
            by_leader = self._by_leader(missing)
            for taken in in_threads(self._produce, list(by_leader.items())):
                missing -= taken
            if missing:
                if time.time() > deadline:
                    raise TimeoutError(f"{len(missing)} partitions take no records: {min(missing)}")
                time.sleep(_PAUSE_S)
        return time.time()

    def _produce(self, wanted: tuple[int, list[Replica]]) -> set[Replica]:
        """Produce a record to each replica at one broker, and return those that took it."""
        broker, replicas = wanted
        try:
            return set(replicas).difference(self._probes[broker].refused(replicas))
        except OSError:
            return set()

    def _by_leader(self, missing: Collection[Replica]) -> dict[int, list[Replica]]:
        """Return the missing replicas by the broker that is told to lead them, if it is one of
        these brokers."""
        leaders = self.leaders(sorted({replica.topic for replica in missing}))
        found: dict[int, list[Replica]] = {}
        for replica in missing:
            of_topic = leaders.get(replica.topic, [])
            leader = of_topic[replica.partition] if replica.partition < len(of_topic) else -1
            if leader in self._probes:
                found.setdefault(leader, []).append(replica)
        return found


def _told(probe: BrokerProbe, topics: Sequence[str], holds: Holds) -> set[str]:
    """The topics of which the broker says what holds; of one it does not know: no leaders."""
    try:
        leaders = probe.leaders(topics)
    except OSError:
        return set()
    return {topic for topic in topics if holds(topic, leaders.get(topic, []))}


def in_threads(work: Callable[[A], R], items: Sequence[A]) -> list[R]:
    """The results in order; raises what one of them raised."""
    if not items:
        return []
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(work, items))
