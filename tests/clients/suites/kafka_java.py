"""Kafka's own compiled client tests, each against a cluster as its annotations ask for one.

``java/SuiteRunner.java`` lists the tests, and runs the ones that it is told to.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import click

from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.settings import check_settings
from quorate.common.configuration import ConfigError
from quorate.testing import RunningCluster
from tests.clients.suites.cases import Case
from tests.clients.suites.clusters import PLAIN_LOGIN, suite_cluster
from tests.clients.suites.java_build import CLUSTER_TESTS, classes_of
from tests.clients.suites.java_process import JavaProcess
from tests.clients.suites.selection import Selection

TESTS_JAR: Final = "kafka-clients-integration-tests"

TEST_LIMIT_MS: Final = 120_000
"""Some tests wait for 60 s when all is well."""

_FIRST_CONTROLLER: Final = 3000
"""Kafka's test kit numbers its controllers from here on. Any broker may be the controller here."""

JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",  # A test ends before better machine code would pay.
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""More logs: ``JDKJAVA_OPTIONS=-Dorg.slf4j.simpleLogger.log.org.apache.kafka=debug``."""


@dataclass(frozen=True, slots=True)
class AskedCluster:
    """What the annotations of a test ask for. ``left_out``: properties that Quorate does not
    know."""

    brokers: int
    config: Mapping[str, object]
    broker_configs: Mapping[int, Mapping[str, object]]
    left_out: Sequence[str]

    @classmethod
    def parse(cls, fields: Sequence[str]) -> Self:
        """Read ``brokers=3``, ``security=PLAINTEXT``, ``set:key=value`` and ``set.0:key=value``."""
        brokers = 1
        config: dict[str, object] = {}
        some: dict[int, dict[str, object]] = {}
        left_out = []
        for word, value in (_split(field) for field in fields):
            kind, _, key = word.partition(":")
            if kind == "brokers":
                brokers = int(value)
            elif word == "security" and value == "SASL_PLAINTEXT":
                config |= PLAIN_LOGIN
            elif key and not _is_known(key, value):
                left_out.append(f"{key}={value}")
            elif kind == "set":
                config[key] = value
            elif key:
                some.setdefault(int(kind.removeprefix("set.")), {})[key] = value
        for broker in (one for one in list(some) if one >= _FIRST_CONTROLLER):
            config |= some.pop(broker)
        return cls(brokers, config, some, left_out)


def _split(field: str) -> tuple[str, str]:
    word, _, value = field.partition("=")
    return word, value


def _is_known(key: str, value: str) -> bool:
    try:
        check_settings({key: value})
    except ConfigError:
        return False
    return True


class JavaSuite:
    """The tests of a class path, and the process that runs them. A context manager."""

    def __init__(self, path: str, classes: Sequence[str], log: Path) -> None:
        """``log`` receives what the tests print, and where they failed."""
        limit = str(TEST_LIMIT_MS)
        command = ["java", *JAVA_OPTIONS, "-cp", path, "SuiteRunner", limit, *classes]
        self._process = JavaProcess(command, log)
        self.clusters = {
            name: AskedCluster.parse(fields) for name, *fields in self._process.listed()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.end()

    def run(self, names: Sequence[str]) -> Iterator[Case]:
        """Run tests one after the other, each on a cluster of its own: tests of a class create
        topics of the same name."""
        for name in names:
            yield self._run(name, self.clusters[name])

    def _run(self, name: str, asked: AskedCluster) -> Case:
        try:
            with suite_cluster(asked.brokers, asked.config, asked.broker_configs) as cluster:
                case = self._run_on(name, cluster)
        except (ConfigError, LocalClusterError, OSError) as error:
            case = Case(name, "failed", "no such cluster: " + " ".join(str(error).split()))
        if case.result == "passed" or not asked.left_out:
            return case
        return replace(case, reason=f"{case.reason} (without {', '.join(asked.left_out)})")

    def _run_on(self, name: str, cluster: RunningCluster) -> Case:
        addresses = [f"{id}={cluster.broker_address(id)}" for id in cluster.broker_ids]
        begin = time.monotonic()
        result, reason = self._process.run(name, addresses, _operations(cluster))
        return Case(name, result, reason, time.monotonic() - begin)


def _operations(cluster: RunningCluster) -> Mapping[str, Callable[[int], None]]:
    """Return what a test may have done to a broker."""
    return {"STOP": cluster.stop_broker, "START": cluster.restart_broker}


def run(selection: Selection, log: Path | None = None) -> Iterator[Case]:
    """Fetch and compile the tests, and run those that are selected. ``log`` receives what they
    print, and the stack traces of those that fail."""
    path = CLUSTER_TESTS.class_path()
    with JavaSuite(path, classes_of(path, TESTS_JAR), log or Path(os.devnull)) as suite:
        names, left = selection.split(suite.clusters)
        click.echo(f"{len(names)} tests to run, {len(left)} that do not apply")
        yield from left
        yield from suite.run(names)
