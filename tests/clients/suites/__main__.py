"""``python -m tests.clients.suites SUITE …``: runs a suite and says what became of each test."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import click

from tests.clients.suites import (
    aiokafka,
    confluent,
    franz_go,
    kafka_java,
    kafka_kit,
    kafka_python,
    kafkajs,
    librdkafka,
)
from tests.clients.suites.cases import Case
from tests.clients.suites.findings import Expected, write_passed
from tests.clients.suites.reports import closing_line, line, unexplained, write_json
from tests.clients.suites.selection import Selection

OF_CHECKOUTS: Final[Mapping[str, Callable[[Path, Selection], Iterator[Case]]]] = {
    "aiokafka": aiokafka.cases,
    "confluent-kafka-python": confluent.cases,
    "kafka-python": kafka_python.cases,
    "kafkajs": kafkajs.cases,
    "librdkafka": librdkafka.cases,
    "librdkafka-full": partial(librdkafka.cases, quick=False),
}
"""Suite → how the tests of a checkout are run."""

FETCHED: Final[Mapping[str, Callable[[Selection, Path | None], Iterator[Case]]]] = {
    "franz-go": franz_go.run,
    "kafka-connect": kafka_kit.connect,
    "kafka-java": kafka_java.run,
    "kafka-streams": kafka_kit.streams,
}
"""Suites that are fetched by the tools of their language."""


def main() -> None:
    given = _arguments()
    expected = Expected.load(given.suite)
    cases = []
    for case in _cases(given, Selection(expected, given.only, given.all)):
        cases.append(case)
        click.echo(line(case, expected))
    if not given.only:
        for case in expected.gone(cases):
            cases.append(case)
            click.echo(line(case, expected))
    if given.write_passed:
        write_passed(given.suite, cases)
    if given.json is not None:
        write_json(given.json, given.suite, cases, expected)
    click.echo(closing_line(given.suite, cases, expected))
    sys.exit(1 if unexplained(cases, expected) or not cases else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.suites")
    parser.add_argument("suite", choices=sorted({*OF_CHECKOUTS, *FETCHED}))
    parser.add_argument(
        "source", type=Path, nargs="?", help="its checkout, built; none for a suite that is fetched"
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="a part of a name, or a*b")
    parser.add_argument("--all", action="store_true", help="those that do not apply as well")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the results, for programs")
    parser.add_argument("--log", type=Path, metavar="FILE", help="of Java: stack traces")
    parser.add_argument(
        "--write-passed", action="store_true", help="what passes now is what passes from now on"
    )
    given = parser.parse_args()
    if (given.suite in OF_CHECKOUTS) != (given.source is not None):
        parser.error(f"{given.suite} is run from a checkout, which SOURCE names")
    return given


def _cases(given: argparse.Namespace, selection: Selection) -> Iterator[Case]:
    if given.suite in FETCHED:
        return FETCHED[given.suite](selection, given.log)
    return OF_CHECKOUTS[given.suite](given.source.resolve(), selection)


if __name__ == "__main__":
    main()
