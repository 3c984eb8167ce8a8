"""The Java processes of an application, which may be killed and started again."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.clients.suites.java_build import JavaProgram

APPLICATIONS: Final = JavaProgram("kafka-applications", Path(__file__).parent / "java")
"""Kafka Streams, Connect with its connectors for files, and the word count."""

_JAVA: Final = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

StartWorker = Callable[[int], Sequence[str]]
"""Returns the main class and the arguments of the worker of that number, from 0 on."""


class Workers:
    """The workers of one application, with a log for each in ``folder``."""

    def __init__(self, count: int, folder: Path, arguments_of: StartWorker) -> None:
        self._folder = folder
        self._arguments_of = arguments_of
        self._class_path = APPLICATIONS.class_path()
        self._processes = [self._start(number) for number in range(count)]

    def __len__(self) -> int:
        return len(self._processes)

    def kill(self, number: int) -> None:
        """Kill a worker by kill -9."""
        self._processes[number].kill()
        self._processes[number].wait()

    def start_again(self, number: int) -> None:
        """Start a worker that was killed."""
        self._processes[number] = self._start(number)

    def ended(self) -> list[int]:
        """Return the workers that ended by themselves."""
        return [n for n, process in enumerate(self._processes) if process.poll() is not None]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = [*_JAVA, "-cp", self._class_path, *self._arguments_of(number)]
        with (self._folder / f"worker-{number}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)


@contextmanager
def running_workers(count: int, folder: Path, arguments_of: StartWorker) -> Iterator[Workers]:
    """Run workers, and kill those that are left at the end.

    Raises:
        NotBuilt: there is no Java, or Maven cannot fetch what is needed.
    """
    workers = Workers(count, folder, arguments_of)
    try:
        yield workers
    finally:
        for number in range(count):
            workers.kill(number)
