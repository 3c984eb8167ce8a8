"""Measures what transactions cost beside plain idempotent producing, and beside Kafka's.

Three brokers, three replicas, acks=all, 1,000-byte records. Each producer sends so many records to
all partitions, waits until they are acknowledged, commits, and begins again; the plain ones do the
same without the transaction. With ``KAFKA_HOME`` set, a Kafka of three brokers takes the same loads
in turn. Clients and servers share this machine: ratios count, and the servers' CPU time.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from bench._kafka_load import in_own_process
from bench._support import Bench, median_row, percentile
from bench._transactional_load import Chunks, Lanes
from bench.peers.processes import cpu_seconds
from bench.produce_matrix.systems import (
    KAFKA,
    QUORATE,
    System,
    kafka_if_installed,
    quorate,
    topics_for,
)
from bench.produce_matrix.workload import Workload

PARTITIONS: Final = 6
RECORD_BYTES: Final = 1_000
GOAL_PERCENT: Final = 25
"""The goal for the loss of throughput, in percent, at ``GOAL_RECORDS`` per transaction."""
GOAL_RECORDS: Final = 1_000
WARM_UP_ROUNDS: Final = 3
WORKLOAD: Final = Workload(partitions=PARTITIONS)


class Case(NamedTuple):
    """One case. ``records`` is the number in each transaction."""

    producers: int
    records: int


WARM_UP: Final = Case(1, GOAL_RECORDS)
FULL: Final = [Case(p, n) for p in (1, 8) for n in (10, 100, 1_000, 10_000)]
QUICK: Final = [Case(1, 100), Case(1, GOAL_RECORDS), Case(8, GOAL_RECORDS)]


class Seconds(NamedTuple):
    """The length of the warm-up and of each measurement, in seconds."""

    warm_up: float
    measured: float


def measure(
    system: System, topic: str, case: Case, seconds: Seconds, name: str | None
) -> dict[str, float]:
    """``name``: of the transactional ids; None: plain."""
    lanes = Lanes(
        Chunks(
            bootstrap=system.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            producers=case.producers,
            records=case.records,
            record_bytes=RECORD_BYTES,
            transactional_id=name,
        )
    )
    lanes.send(seconds.warm_up)
    before = cpu_seconds(system.pids)
    done = lanes.send(seconds.measured)
    spent_s = cpu_seconds(system.pids) - before
    records = done.chunks * case.records
    figures = {
        "records/s": records / done.elapsed_s,
        "servers CPU us/record": spent_s / records * 1e6,
    }
    if name is not None:
        figures["transactions/s"] = done.chunks / done.elapsed_s
        figures["commit p50 ms"] = percentile(done.commits_ms, 0.5)
        figures["commit p99 ms"] = percentile(done.commits_ms, 0.99)
    return figures


def compared(plain: Mapping[str, float], transactional: Mapping[str, float]) -> dict[str, float]:
    """A row: of transactions, and how much of the plain producers' throughput they lose, and how
    much CPU of the servers they add, both in percent."""
    lost = 1 - transactional["records/s"] / plain["records/s"]
    added = transactional["servers CPU us/record"] / plain["servers CPU us/record"] - 1
    return {
        "plain records/s": plain["records/s"],
        **transactional,
        "overhead %": 100 * lost,
        "CPU overhead %": 100 * added,
    }


class Comparison:
    """Measures case by case, the systems in turn, plain and in transactions by turns."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seconds = bench.pick(full=Seconds(1.0, 4.0), quick=Seconds(0.5, 2.0))
        self._ids = 0

    def warm_up(self, systems: Sequence[System]) -> None:
        """Java compiles what runs often."""
        rounds = self._bench.pick(full=WARM_UP_ROUNDS, quick=1)
        with topics_for("warm-up", WORKLOAD, systems) as (topic,):
            for system in systems:
                for _ in range(rounds):
                    self._sample(system, topic, WARM_UP)

    def row(self, case: Case, systems: Sequence[System]) -> list[str]:
        """Adds a line per system; says where the goal is missed."""
        samples: dict[str, list[dict[str, float]]] = {system.name: [] for system in systems}
        name = f"transactions-{case.producers}-{case.records}"
        with topics_for(name, WORKLOAD, systems) as (topic,):
            for _ in range(self._bench.repetitions):
                for system in systems:
                    samples[system.name].append(self._sample(system, topic, case))
        medians = {name: median_row(of_one) for name, of_one in samples.items()}
        for name, figures in medians.items():
            self._bench.row({**case._asdict(), "system": name}, figures)
        return list(misses(case, medians))

    def _sample(self, system: System, topic: str, case: Case) -> dict[str, float]:
        try:
            plain, transactional = (
                in_own_process(measure, system, topic, case, self._seconds, name)
                for name in (None, self._new_name())
            )
        except (RuntimeError, KafkaException) as error:
            raise RuntimeError(f"{system.name}, {case}: {error}") from error
        return compared(plain, transactional)

    def _new_name(self) -> str:
        self._ids += 1
        return f"bench-{self._ids}"


def misses(case: Case, medians: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield a line for each thing that is not as it should be in one case."""
    where = f"{case.producers} producers, {case.records} records"
    ours = medians[QUORATE]
    if case.records == GOAL_RECORDS and ours["overhead %"] > GOAL_PERCENT:
        yield f"{where}: overhead {ours['overhead %']:.0f} %, the goal is {GOAL_PERCENT} %"
    if (theirs := medians.get(KAFKA)) is None:
        return
    for figure in ("transactions/s", "records/s"):
        if ours[figure] < theirs[figure]:
            yield f"{where}: {figure} {ours[figure]:.0f}, Kafka {theirs[figure]:.0f}"
    for figure in ("commit p50 ms", "commit p99 ms", "servers CPU us/record"):
        if ours[figure] > theirs[figure]:
            yield f"{where}: {figure} {ours[figure]:.3g}, Kafka {theirs[figure]:.3g}"


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Transactions",
        "3 brokers, RF 3, acks=all, 6 partitions, 1,000-byte records, log.flush=os",
        arguments,
    )
    comparison = Comparison(bench)
    with ExitStack() as running:
        systems = [
            running.enter_context(quorate("os")),
            *running.enter_context(kafka_if_installed()),
        ]
        comparison.warm_up(systems)
        missed = [
            line
            for case in bench.pick(full=FULL, quick=QUICK)
            for line in comparison.row(case, systems)
        ]
    bench.finish()
    print("\n".join(missed) if missed else "every goal is met", flush=True)


if __name__ == "__main__":
    main()
