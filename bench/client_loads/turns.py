"""The systems, each in its turn and alone: started, warmed up, measured and stopped."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, NamedTuple

from bench._support import Bench
from bench._yardstick import measure_yardstick
from bench.client_loads.librdkafka import Saturated
from bench.client_loads.load import Figures, Load, Target
from bench.client_loads.settling import Round, is_warm, medians_and_spreads
from bench.peers.kafka import KafkaInstallation
from bench.produce_matrix.systems import System, kafka, quorate
from bench.produce_matrix.workload import KIB, Flush, Workload
from quorate.common.scheduling import SchedulingPolicy, schedule_as

KAFKA_GIGABYTES: Final = 5.0
QUORATE_GIGABYTES: Final = 0.5
"""Each system is warmed up with at least this much. Only Java compiles what runs often."""
_MOST_ROUNDS: Final = 30
_WARM_UP: Final = Saturated("warm-up", 8.0, record_bytes=1_000, batch_bytes=64 * KIB)
_SETTLE_S: Final = 3.0


class Turn(NamedTuple):
    """One system's turn. ``loads``: what it is measured under."""

    system: str
    least_gigabytes: float
    start: Callable[[], AbstractContextManager[System]]
    loads: Sequence[Load]
    only_if_named: bool = False
    """Whether it is taken only where ``--rows`` picks some of its rows."""

    def row_name(self, load: Load) -> str:
        """The name that ``--rows`` matches: of the system and of the load."""
        return f"{self.system.lower().replace(' ', '-')}-{load.name}"


def quorate_turn(flush: Flush, loads: Sequence[Load]) -> Turn:
    """Quorate's brokers and voters, as they come but for ``log.flush``."""
    return Turn(f"Quorate {flush}", QUORATE_GIGABYTES, lambda: quorate(flush), loads)


def interrupting_quorate_turn(loads: Sequence[Load]) -> Turn:
    """Quorate's brokers with ``scheduling.policy=normal``."""
    settings = {"scheduling.policy": "normal"}
    return Turn(
        "Quorate normal os",
        QUORATE_GIGABYTES,
        lambda: quorate("os", settings),
        loads,
        only_if_named=True,
    )


def kafka_turn(installation: KafkaInstallation, loads: Sequence[Load]) -> Turn:
    """Kafka's brokers as they come."""

    name = f"Kafka {installation.version}"
    return Turn(name, KAFKA_GIGABYTES, lambda: kafka(installation), loads)


def patient_kafka_turn(installation: KafkaInstallation, loads: Sequence[Load]) -> Turn:
    """Kafka's brokers with the scheduling policy that Quorate's have: its best case, too."""

    @contextmanager
    def start() -> Iterator[System]:
        with kafka(installation) as system:
            for pid in system.pids:
                schedule_as(SchedulingPolicy.BATCH, pid)
            yield system

    return Turn(f"Kafka {installation.version} batch", KAFKA_GIGABYTES, start, loads)


def take(bench: Bench, turn: Turn) -> None:
    """Measure the system under each of the turn's loads."""
    print(f"\n{turn.system}; {measure_yardstick().line()}", flush=True)
    with turn.start() as system:
        _warm_up(turn, system)
        for load in turn.loads:
            samples = _samples(system, load, bench.repetitions, discarded=not bench.quick)
            bench.row({"client": load.name, "system": turn.system}, medians_and_spreads(samples))


def _warm_up(turn: Turn, system: System) -> None:
    rounds: list[Round] = []
    while len(rounds) < _MOST_ROUNDS and not is_warm(rounds, turn.least_gigabytes):
        (figures,) = _samples(system, _WARM_UP, 1, discarded=False, first=len(rounds))
        gigabytes = figures["MB/s"] * _WARM_UP.seconds / 1000
        rounds.append(Round(gigabytes, figures["servers CPU s/GB"]))
    spent = ", ".join(f"{each.cpu_s_per_gb:.3g}" for each in rounds)
    state = "is warm" if is_warm(rounds, turn.least_gigabytes) else "DID NOT SETTLE"
    print(
        f"{turn.system} {state} after {sum(each.gigabytes for each in rounds):.1f} GB in "
        f"{len(rounds)} rounds; servers' CPU s/GB: {spent}",
        flush=True,
    )


def _samples(
    system: System, load: Load, count: int, *, discarded: bool, first: int = 0
) -> list[Figures]:
    """Measure so many times, each with a topic of its own, which is gone before the next.

    ``discarded``: measure once more, at the beginning, and forget that.
    """
    numbers = range(first, first + count + discarded)
    topics = [f"{load.name}-{number}" for number in numbers]
    workload = Workload(partitions=load.partitions)
    for topic in topics:
        system.create_topic(topic, workload)
    time.sleep(_SETTLE_S)
    samples = []
    for topic in topics:
        samples.append(load.measure(Target(system.bootstrap, topic, tuple(system.pids))))
        system.delete_topic(topic)
    return samples[discarded:]
