"""Share groups: how many records workers take, how long they wait for them, and what records in
flight weigh (KIP-932).

Three brokers, a topic of six partitions in three replicas with more records than can be taken, and
__share_group_state in three replicas. Workers fetch and accept 100 records at a time, or one. An
acknowledgement counts once it is answered. ``fetch p99 ms`` is the time from asking to getting
while there are records. Where half of the workers die, their connections close, and ``again ms`` is
the time from then to when the last of their records came to another worker. Memory: one worker has
all records that it may have in ten partitions; ``every second accepted`` leaves as many gaps as
there can be. With ``KAFKA_HOME`` set, a Kafka of three brokers takes the same loads in turn.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from confluent_kafka import Producer

from bench._kafka_load import in_own_process
from bench._queue_load import hold, take
from bench._support import Bench, median_row, percentile
from bench.peers.processes import cpu_seconds, memory
from bench.produce_matrix.systems import KAFKA, QUORATE, System, kafka_if_installed, quorate
from bench.produce_matrix.workload import Workload
from tests.queues.campaign import begin_at_the_earliest

TOPIC: Final = "queue"
HELD_TOPIC: Final = "held"
PARTITIONS: Final = 6
HELD_PARTITIONS: Final = 10
HELD_RECORDS: Final = 100_000
RECORD_BYTES: Final = 100
RECORDS_PER_BATCH: Final = 100
WORKERS: Final = (1, 10, 200)
MODES: Final = ("one by one", "100 at once")
HIGHER_IS_BETTER: Final = frozenset({"records/s"})
SETTINGS: Final = {
    "group.share.heartbeat.interval.ms": 1_000,
    "group.share.min.heartbeat.interval.ms": 1_000,
    "group.share.max.size": 1_000,
    "group.share.max.partition.max.record.locks": HELD_RECORDS // HELD_PARTITIONS,
    "group.share.partition.max.record.locks": HELD_RECORDS // HELD_PARTITIONS,
}


class Comparison:
    """Measures case by case, the systems in turn."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seconds = bench.pick(full=5.0, quick=2.0)
        self._groups = 0
        self.missed: list[str] = []

    def prepare(self, system: System) -> None:
        """Produce, and have some workers at work: Java compiles what runs often."""
        system.create_topic(TOPIC, Workload(partitions=PARTITIONS, replicas=3))
        system.create_topic(HELD_TOPIC, Workload(partitions=HELD_PARTITIONS, replicas=3))
        fill(system, TOPIC, PARTITIONS, self._bench.pick(full=1_000_000, quick=300_000))
        fill(system, HELD_TOPIC, HELD_PARTITIONS, 2 * HELD_RECORDS)
        for mode in MODES:
            self._take(system, 10, mode, half_dies=False)

    def rates(self, systems: Sequence[System], workers: int, mode: str, *, half_dies: bool) -> None:
        samples: dict[str, list[dict[str, float]]] = {system.name: [] for system in systems}
        for _ in range(self._bench.repetitions):
            for system in systems:
                samples[system.name].append(self._take(system, workers, mode, half_dies=half_dies))
        case = {"workers": f"{workers}{', half die' if half_dies else ''}", "accepted": mode}
        self._rows(case, samples)

    def memory(self, systems: Sequence[System], *, with_gaps: bool) -> None:
        samples = {system.name: [self._hold(system, with_gaps=with_gaps)] for system in systems}
        accepted = "every second accepted" if with_gaps else "none accepted"
        self._rows({"in flight": HELD_RECORDS, "accepted": accepted}, samples)

    def _take(
        self, system: System, workers: int, mode: str, *, half_dies: bool
    ) -> dict[str, float]:
        place = self._new_place(system, TOPIC)
        before = cpu_seconds(system.pids)
        warm_up_s = 0.5
        done = in_own_process(
            take,
            place,
            workers,
            one_by_one=mode == MODES[0],
            half_dies=half_dies,
            warm_up_s=warm_up_s,
            seconds=self._seconds,
        )
        spent_s = cpu_seconds(system.pids) - before
        per_s = done.records / done.elapsed_s
        figures = {
            "records/s": per_s,
            "fetch p50 ms": percentile(done.latencies_ms, 0.5),
            "fetch p99 ms": percentile(done.latencies_ms, 0.99),
            "servers CPU us": spent_s / (per_s * (done.elapsed_s + warm_up_s)) * 1e6,
        }
        if half_dies:
            figures["again ms"] = done.redelivered_ms
        return figures

    def _hold(self, system: System, *, with_gaps: bool) -> dict[str, float]:
        place = self._new_place(system, HELD_TOPIC)
        held_s = self._bench.pick(full=4.0, quick=2.0)
        before_mb = rss_mb(system)
        most_mb = 0.0
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            holding = pool.submit(
                hold, place, HELD_RECORDS, accept_every_second=with_gaps, held_s=held_s
            )
            while not holding.done():
                most_mb = max(most_mb, rss_mb(system))
                time.sleep(0.1)
            holding.result()
        return {"brokers RSS MB": most_mb - before_mb}

    def _new_place(self, system: System, topic: str) -> tuple[str, str, str]:
        self._groups += 1
        group_id = f"bench-{self._groups}"
        begin_at_the_earliest(system.bootstrap, group_id)
        return system.bootstrap, group_id, topic

    def _rows(
        self,
        case: Mapping[str, str | int],
        samples: Mapping[str, Sequence[Mapping[str, float]]],
    ) -> None:
        medians = {name: median_row(of_one) for name, of_one in samples.items()}
        for name, figures in medians.items():
            self._bench.row({**case, "system": name}, figures)
        if KAFKA not in medians:
            return
        where = ", ".join(map(str, case.values()))
        for figure, ours in medians[QUORATE].items():
            theirs = medians[KAFKA][figure]
            is_ahead = ours >= theirs if figure in HIGHER_IS_BETTER else ours <= theirs
            if not is_ahead:
                self.missed.append(f"{where}: {figure} {ours:.3g}, Kafka {theirs:.3g}")


def rss_mb(system: System) -> float:
    """The resident memory of all processes of a system."""
    return sum(memory(pid).rss_mb for pid in system.pids)


def fill(system: System, topic: str, partitions: int, records: int) -> None:
    """Produce records, as many to each partition.

    Raises:
        RuntimeError: they are not taken.
    """
    producer = Producer(
        {
            "bootstrap.servers": system.bootstrap,
            "log_level": 0,
            "batch.num.messages": RECORDS_PER_BATCH,
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * records,
        }
    )
    value = bytes(RECORD_BYTES)
    for number in range(records):
        producer.produce(topic, value, partition=number % partitions)
        if not number % 1_000:
            producer.poll(0)
    if producer.flush(120.0):
        raise RuntimeError(f"{system.name} does not take records")


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Queues", "share groups of 3 brokers, states in 3 replicas, log.flush=os", arguments
    )
    comparison = Comparison(bench)
    with quorate("os", SETTINGS) as ours, kafka_if_installed(SETTINGS) as theirs:
        systems = [ours, *theirs]
        for system in systems:
            comparison.prepare(system)
        for workers in WORKERS:
            for mode in MODES:
                comparison.rates(systems, workers, mode, half_dies=False)
        for workers in WORKERS[1:]:
            comparison.rates(systems, workers, MODES[1], half_dies=True)
        for with_gaps in (False, True):
            comparison.memory(systems, with_gaps=with_gaps)
    bench.finish()
    if theirs:
        missed = comparison.missed
        print("\n".join(["not ahead of Kafka:", *missed] if missed else ["ahead everywhere"]))


if __name__ == "__main__":
    main()
