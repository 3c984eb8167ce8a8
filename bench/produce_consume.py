"""Throughput, latency and cost of three brokers under confluent-kafka, beside Kafka's.

With ``KAFKA_HOME`` set (its ``libs`` are all that is used, and ``java``), a Kafka of three brokers
takes the same loads in turn. Brokers, their quorum and the client share this machine: figures say
what the whole costs, not what one broker could do alone. ``--rows PATTERN`` picks rows by name.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from bench._kafka_load import in_own_process
from bench._support import Bench, median_row
from bench.peers.contender import Unavailable
from bench.peers.kafka import find_kafka
from bench.produce_matrix.measure import Durations, measure
from bench.produce_matrix.systems import KAFKA, QUORATE, System, kafka, quorate
from bench.produce_matrix.workload import ROWS, Workload, rows

WARM_UP = Durations(warm_up=12.0, full_speed=1.0, half_load=0.5, one_in_flight=0.5)
"""Of a system as a whole: Java compiles what runs often, and what it runs until then is slow."""
FULL = Durations(warm_up=0.5, full_speed=2.0, half_load=2.0, one_in_flight=0.7)
QUICK = Durations(warm_up=0.3, full_speed=1.0, half_load=1.0, one_in_flight=0.3)
LOWER_IS_BETTER = ("CPU", " ms", "PSS")


class Matrix:
    """Measures row by row, the systems in turn, each repetition with a topic of its own."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._durations = bench.pick(full=FULL, quick=QUICK)
        self._topics = 0

    def warm_up(self, system: System) -> None:
        """Nothing of it is kept."""
        self._once(system, ROWS[0], WARM_UP)

    def row(self, workload: Workload, systems: Sequence[System]) -> list[str]:
        """Adds a line per system; says where Quorate is not ahead."""
        samples: dict[str, list[dict[str, float]]] = {each.name: [] for each in systems}
        for _ in range(self._bench.repetitions):
            for system in systems:
                samples[system.name].append(self._once(system, workload, self._durations))
        medians = {name: median_row(of_one) for name, of_one in samples.items()}
        for name, figures in medians.items():
            self._bench.row({**workload.cells(), "system": name}, figures)
        if KAFKA not in medians:
            return []
        return [
            f"{workload.name}: {figure} {ours:.3g}, Kafka {theirs:.3g}"
            for figure, ours in medians[QUORATE].items()
            if not is_ahead(figure, ours, theirs := medians[KAFKA][figure])
        ]

    def _once(self, system: System, workload: Workload, durations: Durations) -> dict[str, float]:
        self._topics += 1
        topic = f"{workload.name}-{self._topics}"
        system.create_topic(topic, workload)
        try:
            return in_own_process(
                measure, system.bootstrap, topic, workload, system.pids, durations
            )
        finally:
            system.delete_topic(topic)


def is_ahead(figure: str, ours: float, theirs: float) -> bool:
    if any(word in figure for word in LOWER_IS_BETTER):
        return ours <= theirs
    return ours >= theirs


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Produce and consume",
        "3 brokers, 1 client process; MB/s of values, CPU time of all servers together",
        arguments,
        selectable=True,
    )
    chosen = rows(bench.pattern, bench.quick)
    behind: list[str] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-bench-")))
        peers: list[System] = []
        try:
            installation = find_kafka()
            print(f"Kafka {installation.version}", flush=True)
            peers.append(stack.enter_context(kafka(folder, installation)))
        except Unavailable as missing:
            print(f"Kafka is left out: {missing}", flush=True)
        matrix = Matrix(bench)
        for peer in peers:
            matrix.warm_up(peer)
        for flush, of_one in groupby(chosen, lambda row: row.flush):
            with quorate(flush) as ours:
                for workload in of_one:
                    behind += matrix.row(workload, [ours, *peers])
    bench.finish()
    if peers:
        print("\nnot ahead of Kafka:", *(behind or ["nowhere"]), sep="\n  ")


if __name__ == "__main__":
    main()
