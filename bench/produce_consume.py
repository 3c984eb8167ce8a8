"""Throughput, latency and cost of three brokers under confluent-kafka, beside Kafka's.

With ``KAFKA_HOME`` set (its ``libs`` are all that is used, and ``java``), a Kafka of three brokers
takes the same loads in turn. Brokers, their quorum and the client share this machine: figures say
what the whole costs, not what one broker could do alone. ``--rows PATTERN`` picks rows by name.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby

from bench._kafka_load import in_own_process
from bench._support import Bench, median_row
from bench.produce_matrix.measure import Durations, measure
from bench.produce_matrix.systems import (
    KAFKA,
    QUORATE,
    System,
    kafka_if_installed,
    quorate,
    topics_for,
)
from bench.produce_matrix.workload import ROWS, Workload, rows

WARM_UP = Durations(warm_up=0.0, full_speed=5.0, half_load=0.5, one_in_flight=0.5)
WARM_UP_ROUNDS = 12
MANY_PARTITIONS = 1_000
"""A topic of more is made once, and not in Kafka: its controller makes no 10,000 in a request."""
FULL = Durations(warm_up=0.5, full_speed=2.0, half_load=2.0, one_in_flight=0.7)
QUICK = Durations(warm_up=0.3, full_speed=1.0, half_load=1.0, one_in_flight=0.3)
LOWER_IS_BETTER = ("CPU", " ms", "PSS")


class Matrix:
    """Measures row by row, the systems in turn, each repetition with a topic of its own."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._durations = bench.pick(full=FULL, quick=QUICK)

    def warm_up(self, system: System) -> None:
        """Repeat the load until it gets no cheaper: Java compiles what runs often, and is slow
        until it has."""
        workload = ROWS[0]
        spent: list[float] = []
        with topics_for(workload.name, workload, [system]) as (topic,):
            while len(spent) < WARM_UP_ROUNDS and not is_settled(spent):
                figures = in_own_process(
                    measure, system.bootstrap, topic, workload, system.pids, WARM_UP
                )
                spent.append(figures["servers CPU s/GB"])
        shown = ", ".join(f"{each:.3g}" for each in spent)
        print(f"{system.name} warming up, servers' CPU s/GB: {shown}", flush=True)

    def row(self, workload: Workload, systems: Sequence[System]) -> list[str]:
        """Adds a line per system; says where Quorate is not ahead."""
        repetitions = self._bench.repetitions
        if workload.partitions > MANY_PARTITIONS:
            repetitions, systems = 1, [each for each in systems if each.name == QUORATE]
        samples: dict[str, list[dict[str, float]]] = {each.name: [] for each in systems}
        with topics_for(workload.name, workload, systems, repetitions) as topics:
            for topic in topics:
                for system in systems:
                    figures = in_own_process(
                        measure, system.bootstrap, topic, workload, system.pids, self._durations
                    )
                    samples[system.name].append(figures)
        medians = {name: median_row(of_one) for name, of_one in samples.items()}
        for name, figures in medians.items():
            self._bench.row({**workload.cells(), "system": name}, figures)
        return compare(workload, medians) if KAFKA in medians else []


def compare(workload: Workload, medians: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a line for each figure in which Quorate is not ahead of Kafka."""
    ours, theirs = medians[QUORATE], medians[KAFKA]
    return [
        f"{workload.name}: {figure} {ours[figure]:.3g} (at {ours['MB/s']:.3g} MB/s), "
        f"Kafka {theirs[figure]:.3g} (at {theirs['MB/s']:.3g} MB/s)"
        for figure in ours
        if not is_ahead(figure, ours[figure], theirs[figure])
    ]


def is_settled(spent: Sequence[float]) -> bool:
    """Whether the last two rounds were no tenth cheaper than the best one before them."""
    return len(spent) > 2 and min(spent[-2:]) > 0.9 * min(spent[:-2])


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
    with ExitStack() as stack:
        stack.callback(bench.finish)  # also of rows that one which failed came after
        peers = stack.enter_context(kafka_if_installed())
        behind = measure_all(Matrix(bench), chosen, peers)
    if peers:
        print("\nnot ahead of Kafka:", *(behind or ["nowhere"]), sep="\n  ")


def measure_all(matrix: Matrix, chosen: Sequence[Workload], peers: Sequence[System]) -> list[str]:
    """All rows, Quorate started anew where ``flush`` changes; where it is not ahead."""
    for peer in peers:
        matrix.warm_up(peer)
    behind: list[str] = []
    for flush, of_one in groupby(chosen, lambda row: row.flush):
        with quorate(flush) as ours:
            for workload in of_one:
                behind += matrix.row(workload, [ours, *peers])
    return behind


if __name__ == "__main__":
    main()
