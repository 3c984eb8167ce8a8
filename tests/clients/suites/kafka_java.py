"""Kafka's own compiled client tests, each against a cluster as its annotations ask for one.

Maven fetches the tests and what they need. ``java/SuiteRunner.java`` is compiled against that,
lists the tests, and runs the ones that it is told to.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self
from zipfile import ZipFile

import click

from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.cluster.settings import check_settings
from quorate.common.configuration import ConfigError
from quorate.testing import RunningCluster
from tests.clients.suites.cases import Case
from tests.clients.suites.clusters import PLAIN_LOGIN, suite_cluster
from tests.clients.suites.java_process import JavaProcess
from tests.clients.suites.selection import Selection

TEST_LIMIT_MS: Final = 120_000
"""Some tests wait for 60 s when all is well."""

_FIRST_CONTROLLER: Final = 3000
"""Kafka's test kit numbers its controllers from here on. Any broker may be the controller here."""

_JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",  # A test ends before better machine code would pay.
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""More logs: ``JDK_JAVA_OPTIONS=-Dorg.slf4j.simpleLogger.log.org.apache.kafka=debug``."""

_JAVA: Final = Path(__file__).with_name("java")
_TESTS_JAR: Final = "kafka-clients-integration-tests-"


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


def missing_tool() -> str | None:
    """Return the first tool that the suite needs and this machine has not."""
    return next((tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None), None)


def class_path(folder: Path, *, offline: bool = False) -> str:
    """Return the class path of the tests and of the runner, which is compiled into ``folder``.

    Raises:
        subprocess.CalledProcessError: with ``offline``, Maven has not fetched the tests before.
    """
    output = folder / "class-path"
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={output}"]
    maven = ["mvn", "-q", "-B", *(["-o"] if offline else []), "-f", str(_JAVA / "pom.xml")]
    subprocess.run([*maven, *goal], check=True, stdout=subprocess.DEVNULL)
    fetched = output.read_text().strip()
    sources = [str(path) for path in _JAVA.glob("*.java")]
    subprocess.run(["javac", "-d", str(folder), "-cp", fetched, *sources], check=True)
    return f"{folder}:{fetched}"


def _classes(path: str) -> list[str]:
    """Return the names of the classes with tests."""
    jar = next(one for one in path.split(":") if Path(one).name.startswith(_TESTS_JAR))
    with ZipFile(jar) as opened:
        names = [name for name in opened.namelist() if name.endswith("Test.class")]
    return sorted(name.removesuffix(".class").replace("/", ".") for name in names)


class JavaSuite:
    """The tests of a class path, and the process that runs them. A context manager."""

    def __init__(self, path: str, log: Path) -> None:
        """``log`` receives what the tests print, and where they failed."""
        limit = str(TEST_LIMIT_MS)
        command = ["java", *_JAVA_OPTIONS, "-cp", path, "SuiteRunner", limit, *_classes(path)]
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
    with tempfile.TemporaryDirectory(prefix="quorate-kafka-java-") as made:
        folder = Path(made)
        with JavaSuite(class_path(folder), log or Path(os.devnull)) as suite:
            names, left = selection.split(suite.clusters)
            click.echo(f"{len(names)} tests to run, {len(left)} that do not apply")
            yield from left
            yield from suite.run(names)
