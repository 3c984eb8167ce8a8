"""Kafka's compiled tests of Kafka Streams and of Connect, which start their clusters themselves.

They do so by Kafka's own test kit. ``java_kit/`` has a class of the same name that has clusters of
Quorate started instead.
"""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Final, Self, cast

import click

from quorate.cluster.local_cluster_errors import LocalClusterError
from quorate.common.configuration import ConfigError
from quorate.testing import RunningCluster
from tests.clients.suites.cases import Case, Result
from tests.clients.suites.clusters import suite_cluster
from tests.clients.suites.java_build import KIT_TESTS, classes_of
from tests.clients.suites.kafka_java import JAVA_OPTIONS, AskedCluster
from tests.clients.suites.selection import Selection

KAFKAS_LIMIT: Final[Mapping[str, object]] = {"message.max.bytes": "1048588"}
"""The default of Kafka's, which a test relies on. Quorate's takes larger batches."""

_TEST_LIMIT_S: Final = 300
_CLASS_LIMIT_S: Final = 1_800
_READY: Final = "READY"


class KitProcess:
    """Runs the tests of a class in a Java process, and does what it asks for. A context manager.

    It asks by lines, fields separated by tabs: ``CLUSTER brokers=N set:key=value…`` (answered
    ``DONE id=address…``), ``STOP id``, ``START id``, ``END`` (``DONE``, or ``FAILED why``). It says
    ``CASE name result seconds reason`` for each test, and ``READY`` after the last.
    """

    def __init__(self, command: Sequence[str], name: str, log: IO[str]) -> None:
        """``name``: that of the class, for what befalls the process."""
        self._name = name
        self._stack = ExitStack()
        self._cluster: RunningCluster | None = None
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self._timer = threading.Timer(_CLASS_LIMIT_S, self._process.kill)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._timer.cancel()
        self._process.kill()
        self._process.communicate()
        self._stack.close()

    def cases(self) -> Iterator[Case]:
        for line in cast(IO[str], self._process.stdout):
            word, *fields = line.rstrip("\n").split("\t")
            if word == _READY:
                return
            if word == "CASE":
                name, result, seconds, reason = fields
                yield Case(name, cast(Result, result), reason, float(seconds))
            elif word != "BEGIN":
                self._say(*self._carry_out(word, fields))
        yield Case(self._name, "failed", "the Java process ended")

    def _carry_out(self, word: str, fields: Sequence[str]) -> tuple[str, ...]:
        try:
            return ("DONE", *self._done(word, fields))
        except (ConfigError, LocalClusterError, OSError) as error:
            return "FAILED", " ".join(str(error).split())

    def _done(self, word: str, fields: Sequence[str]) -> list[str]:
        if word == "CLUSTER":
            return self._start(AskedCluster.parse(fields))
        if word == "END":
            self._end()
            return []
        running = cast(RunningCluster, self._cluster)
        {"STOP": running.stop_broker, "START": running.restart_broker}[word](int(fields[0]))
        return []

    def _start(self, asked: AskedCluster) -> list[str]:
        self._end()
        config = {**KAFKAS_LIMIT, **asked.config}
        made = suite_cluster(asked.brokers, config, asked.broker_configs)
        self._cluster = running = self._stack.enter_context(made)
        return [f"{id}={running.broker_address(id)}" for id in running.broker_ids]

    def _end(self) -> None:
        """End the cluster. A class that starts another one has forgotten the one before."""
        self._stack.close()
        self._cluster = None

    def _say(self, *fields: str) -> None:
        pipe = cast(IO[str], self._process.stdin)
        pipe.write("\t".join(fields) + "\n")
        pipe.flush()


def run(jar: str, package: str, selection: Selection, log: Path | None = None) -> Iterator[Case]:
    """Fetch and compile the tests, and run those that are selected, class by class.

    ``log`` receives what they print, and the stack traces of those that fail. A class of which no
    test applies is only told of.
    """
    path = KIT_TESTS.class_path()
    classes = {name.rpartition(".")[2]: name for name in classes_of(path, jar, package)}
    chosen, left = selection.split_classes(classes)
    click.echo(f"{len(chosen)} classes to run, {len(left)} that do not apply")
    yield from left
    with (log or Path(os.devnull)).open("a") as opened:
        for name in chosen:
            command = ["java", *JAVA_OPTIONS, "-cp", path, "KitRunner", classes[name]]
            with KitProcess([*command, str(_TEST_LIMIT_S)], name, opened) as process:
                yield from (case for case in process.cases() if selection.includes(case.name))


streams = partial(run, "kafka-streams-integration-tests", "org.apache.kafka.streams.integration")
connect = partial(run, "connect-runtime", "org.apache.kafka.connect.integration")
