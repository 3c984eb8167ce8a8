"""Consumer groups: offset commits, how long a group takes to its first records, and what changes of
members cost with either protocol.

Three brokers and __consumer_offsets in three replicas. Commits: so many consumers, each a group of
its own, commit one after another. Joins: members of one group begin together, each is to read from
a partition of its own; ``group.initial.rebalance.delay.ms`` is 0, which would otherwise be most of
it. Changes: all members of a group join, one more joins, one leaves, with the classic protocol and
with the consumer protocol (KIP-848); members heartbeat every second. With ``KAFKA_HOME`` set, a
Kafka of three brokers takes the same loads in turn.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench._group_load import commit, join
from bench._kafka_load import in_own_process
from bench._rebalances import HEARTBEAT_S, rebalances
from bench._support import Bench, median_row, percentile
from bench.peers.processes import cpu_seconds
from bench.produce_matrix.systems import KAFKA, QUORATE, System, kafka_if_installed, quorate
from bench.produce_matrix.workload import Workload

MEMBERS: Final = (1, 10, 100)
CHANGING: Final = (10, 100, 1_000)
"""The members of groups whose members change."""
CONSUMERS: Final = ((1, 1), (10, 1), (100, 1), (10, 100))
"""The cases: the number of consumers, and the number of partitions that each of them commits."""
PARTITIONS: Final = 100
TOPIC: Final = "groups"
_HEARTBEAT_MS: Final = int(HEARTBEAT_S * 1000)
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.heartbeat.interval.ms": _HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": _HEARTBEAT_MS,
}
PROTOCOLS: Final = ("classic", "consumer")
PARTITIONS_PER_MEMBER: Final = 2
_REPLICAS_OF_MANY: Final = 1
"""The replicas of topics whose partitions are assigned and never read."""
WARM_UP_ROUNDS: Final = 4
HIGHER_IS_BETTER: Final = frozenset({"commits/s"})


Measure = Callable[[System], dict[str, float]]


class Comparison:
    """Measures case by case, the systems in turn."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seconds = bench.pick(full=4.0, quick=1.0)
        self._groups = 0

    def prepare(self, system: System) -> None:
        """One record in each partition; Java compiles what runs often."""
        system.create_topic(TOPIC, Workload(partitions=PARTITIONS, replicas=3))
        producer = Producer({"bootstrap.servers": system.bootstrap, "log_level": 0})
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"record", partition=partition)
        if producer.flush(60.0):
            raise RuntimeError(f"{system.name} does not take records")
        for _ in range(self._bench.pick(full=WARM_UP_ROUNDS, quick=1)):
            self._commits(system, 10, 10)
            self._joins(system, 10)

    def commits(self, systems: Sequence[System], consumers: int, partitions: int) -> list[str]:
        case = f"{consumers} x {partitions}"
        return self._row(
            {"consumers x partitions": case},
            systems,
            lambda system: self._commits(system, consumers, partitions),
        )

    def joins(self, systems: Sequence[System], members: int) -> list[str]:
        return self._row(
            {"members that join": members}, systems, lambda system: self._joins(system, members)
        )

    def _commits(self, system: System, consumers: int, partitions: int) -> dict[str, float]:
        before = cpu_seconds(system.pids)
        warm_up_s = 0.3
        done = in_own_process(
            commit, system.bootstrap, TOPIC, consumers, partitions, warm_up_s, self._seconds
        )
        spent_s = cpu_seconds(system.pids) - before
        per_s = len(done.latencies_ms) / done.elapsed_s
        return {
            "commits/s": per_s,
            "commit p50 ms": percentile(done.latencies_ms, 0.5),
            "commit p99 ms": percentile(done.latencies_ms, 0.99),
            "servers CPU us": spent_s / (per_s * (done.elapsed_s + warm_up_s)) * 1e6,
        }

    def _joins(self, system: System, members: int) -> dict[str, float]:
        self._groups += 1
        leaders = leaders_of(system, members)
        group_id = f"bench-join-{self._groups}"
        before = cpu_seconds(system.pids)
        done = in_own_process(join, system.bootstrap, leaders, TOPIC, group_id)
        return {
            "first record p50 ms": done.median_s * 1000,
            "last member's ms": done.last_s * 1000,
            "servers CPU ms": (cpu_seconds(system.pids) - before) * 1000,
        }

    def changes(self, systems: Sequence[System], members: int) -> list[str]:
        """Measure what changes of a group with so many members cost, by protocol."""
        topic, partitions = f"{TOPIC}-{members}", PARTITIONS_PER_MEMBER * members
        for system in systems:
            system.create_topic(topic, Workload(partitions=partitions, replicas=_REPLICAS_OF_MANY))
        missed: list[str] = []
        for protocol in PROTOCOLS:
            measured = [
                {system.name: self._changes(system, protocol, topic, members) for system in systems}
                for _ in range(self._bench.repetitions)
            ]
            for change in measured[0][QUORATE]:
                case = {"protocol": protocol, "members": members, "change": change}
                samples = {
                    system.name: [of_all[system.name][change] for of_all in measured]
                    for system in systems
                }
                missed += self._rows(case, samples)
        return missed

    @staticmethod
    def _changes(
        system: System, protocol: str, topic: str, members: int
    ) -> dict[str, dict[str, float]]:
        partitions = PARTITIONS_PER_MEMBER * members
        done = in_own_process(
            rebalances, system.bootstrap, protocol, topic, members, partitions, system.pids
        )
        return {
            name: {
                "settled ms": change.settled_s * 1000,
                "most heartbeats": change.heartbeats,
                "longest idle ms": change.idle_s * 1000,
                "servers CPU ms": cpu_s * 1000,
            }
            for name, (change, cpu_s) in done.items()
        }

    def _row(
        self,
        case: Mapping[str, str | int],
        systems: Sequence[System],
        measure: Measure,
    ) -> list[str]:
        """Adds a line per system; says where Quorate is not ahead."""
        samples: dict[str, list[dict[str, float]]] = {system.name: [] for system in systems}
        for _ in range(self._bench.repetitions):
            for system in systems:
                samples[system.name].append(measure(system))
        return self._rows(case, samples)

    def _rows(
        self, case: Mapping[str, str | int], samples: Mapping[str, Sequence[Mapping[str, float]]]
    ) -> list[str]:
        medians = {name: median_row(of_one) for name, of_one in samples.items()}
        for name, figures in medians.items():
            self._bench.row({**case, "system": name}, figures)
        return list(behind(case, medians))


def behind(
    case: Mapping[str, str | int], medians: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """Yield a line for each figure in which Quorate is not ahead of Kafka."""
    if KAFKA not in medians:
        return
    where = ", ".join(f"{name} {value}" for name, value in case.items())
    for figure, ours in medians[QUORATE].items():
        theirs = medians[KAFKA][figure]
        is_ahead = ours >= theirs if figure in HIGHER_IS_BETTER else ours <= theirs
        if not is_ahead:
            yield f"{where}: {figure} {ours:.3g}, Kafka {theirs:.3g}"


def leaders_of(system: System, partitions: int) -> list[str]:
    """host:port of the leaders of the first partitions."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap, "log_level": 0})
    told = admin.list_topics(TOPIC, timeout=30.0)
    brokers = {node: f"{broker.host}:{broker.port}" for node, broker in told.brokers.items()}
    known = told.topics[TOPIC].partitions
    return [brokers[known[number].leader] for number in range(partitions)]


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Consumer groups", "3 brokers, offsets in 3 replicas, log.flush=os", arguments
    )
    comparison = Comparison(bench)
    with quorate("os", SETTINGS) as ours, kafka_if_installed(SETTINGS) as theirs:
        systems = [ours, *theirs]
        for system in systems:
            comparison.prepare(system)
        missed = [
            line
            for consumers, partitions in CONSUMERS
            for line in comparison.commits(systems, consumers, partitions)
        ]
        missed += [line for members in MEMBERS for line in comparison.joins(systems, members)]
        for members in bench.pick(full=CHANGING, quick=CHANGING[:2]):
            missed += comparison.changes(systems, members)
    bench.finish()
    if theirs:
        print("\n".join(["not ahead of Kafka:", *missed] if missed else ["ahead everywhere"]))


if __name__ == "__main__":
    main()
