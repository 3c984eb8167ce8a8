"""``python -m tests.clients.suites SUITE CHECKOUT``: runs it and prints what became of it."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from tests.clients.suites import aiokafka, kafka_java, kafka_python, librdkafka
from tests.clients.suites.cases import Case, judge, table
from tests.clients.suites.clusters import suite_cluster


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.suites")
    parser.add_argument("suite", choices=["kafka-java", "kafka-python", "aiokafka", "librdkafka"])
    parser.add_argument(
        "source", type=Path, nargs="?", help="its checkout; librdkafka's is built; kafka-java: none"
    )
    parser.add_argument("--only", default="", help="tests whose name contains this")
    parser.add_argument("--full", action="store_true", help="librdkafka: not its quick mode")
    given = parser.parse_args()
    if given.suite == "kafka-java":
        sys.exit(0 if _kafka_java(given.only) else 1)
    if given.source is None:
        parser.error("the suite's checkout is not given")
    source = given.source.resolve()
    if given.suite == "librdkafka":
        names = [name for name in librdkafka.test_names(source) if given.only in name]
        ended_well = _librdkafka(source, names, quick=not given.full)
    else:
        ended_well = _of_python(given.suite, source)
    sys.exit(0 if ended_well else 1)


def _kafka_java(only: str) -> bool:
    missing = kafka_java.missing_tool()
    if missing is not None:
        click.echo(f"kafka-java: not run, since there is no {missing}")
        return True
    cases = []
    for case in kafka_java.run(only):
        cases.append(case)
        click.echo(f"{case.result:7}  {case.name}  {case.reason[:160]}")
    click.echo(table("kafka-java", cases, {}))
    return bool(cases) and not judge(cases, {}).unexpected


def _of_python(name: str, source: Path) -> bool:
    suite = kafka_python if name == "kafka-python" else aiokafka
    ended_well = True
    for brokers, known in ((3, suite.ASKS_FOR_ONE_BROKER), (1, {})):
        with suite_cluster(brokers, suite.CONFIG) as cluster:
            cases = suite.run(source, cluster.bootstrap)
        ended_well &= _told(f"{name}, {brokers} broker(s)", cases, known)
    return ended_well


def _librdkafka(source: Path, names: Sequence[str], *, quick: bool) -> bool:
    cases = []
    with suite_cluster(3, librdkafka.CONFIG) as cluster:
        for case in librdkafka.run(source, cluster.bootstrap, names, quick=quick):
            cases.append(case)
            click.echo(f"{case.result:7}  {case.name}  {case.reason[:90]}")
    return _told("librdkafka, 3 brokers", cases, librdkafka.KNOWN)


def _told(title: str, cases: Sequence[Case], known: Mapping[str, str]) -> bool:
    click.echo(table(title, cases, known))
    return not judge(cases, known).unexpected


if __name__ == "__main__":
    main()
