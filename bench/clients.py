"""This bench does what most clients do, with three brokers of Quorate and with three of Kafka.

RF 3, acks=all, 12 partitions. Java's own producer performance tool, librdkafka in several shapes,
many slow producers, one record end to end, and bare Fetch requests. Each system is alone on the
machine in its turn; Quorate with ``log.flush`` os and sync, Kafka as it comes, and Kafka under the
scheduling policy of Quorate's brokers ("batch"). The rows of 'quorate-normal', whose brokers have
Kafka's policy, are measured where ``--rows`` matches them. Kafka's jars are those of
``KAFKA_HOME``, or Maven fetches them. ``--rows PATTERN`` picks rows by the beginning of their
names: 'kafka', 'quorate-os-java', '*-bare-fetch'.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Final

from bench._support import Bench
from bench.client_loads.load import Load
from bench.client_loads.rows import java_loads, librdkafka_loads
from bench.client_loads.turns import (
    Turn,
    interrupting_quorate_turn,
    kafka_turn,
    patient_kafka_turn,
    quorate_turn,
    take,
)
from bench.peers.kafka import KafkaInstallation, announced, fetched_kafka

REPETITIONS: Final = 5


def main(arguments: Sequence[str] | None = None) -> None:
    bench = Bench.from_command_line(
        "Clients",
        "3 brokers, RF 3, acks=all, 12 partitions; MB/s of values, CPU time of all servers",
        arguments,
        selectable=True,
        repetitions=REPETITIONS,
    )
    installation = announced(fetched_kafka, "Kafka and the rows of Java's tools are left out")
    turns = all_turns(installation, quick=bench.quick)
    with ExitStack() as stack:
        stack.callback(bench.finish)  # also of rows that one which failed came after
        stack.callback(lambda: in_order_of_clients(bench, turns))
        for turn in picked(turns, bench.pattern):
            take(bench, turn)


def all_turns(installation: KafkaInstallation | None, *, quick: bool) -> list[Turn]:
    """The turns that are possible here: without Kafka only those of Quorate, without Java."""
    loads = librdkafka_loads(quick=quick)
    if installation is not None:
        loads = [*java_loads(installation, quick=quick), *loads]
    turns = [
        quorate_turn("os", loads),
        quorate_turn("sync", loads),
        interrupting_quorate_turn(loads),
    ]
    if installation is not None:
        turns += [kafka_turn(installation, loads), patient_kafka_turn(installation, loads)]
    return turns


def picked(turns: Sequence[Turn], pattern: str | None) -> list[Turn]:
    """The turns with the loads whose names begin with ``pattern`` (``*``: anything); None: all.

    Raises:
        ValueError: there is none.
    """
    wanted = f"{pattern or ''}*"
    found = []
    for turn in turns:
        if turn.only_if_named and pattern is None:
            continue
        loads: list[Load] = [
            load for load in turn.loads if fnmatchcase(turn.row_name(load), wanted)
        ]
        if loads:
            found.append(turn._replace(loads=loads))
    if not found:
        names = "\n  ".join(turn.row_name(load) for turn in turns for load in turn.loads)
        raise ValueError(f"no row matches {pattern!r}; there are\n  {names}")
    return found


def in_order_of_clients(bench: Bench, turns: Sequence[Turn]) -> None:
    """Put the rows of the same client below each other, in the order of the systems' turns."""
    order = [load.name for load in turns[0].loads]
    bench.rows.sort(key=lambda row: order.index(str(row["client"])))


if __name__ == "__main__":
    main()
