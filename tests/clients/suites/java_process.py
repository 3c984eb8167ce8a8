"""The Java process that runs Kafka's tests: started again after a test that left threads behind."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, cast

from quorate.cluster.local_cluster_errors import LocalClusterError
from tests.clients.suites.cases import Result

LISTED: Final = "LISTED"


class JavaProcess:
    """Speaks with ``java/SuiteRunner.java``, a line at a time, fields separated by tabs.

    It lists the tests (``TEST name field…``, then ``LISTED``). Told ``RUN name id=address…``, it
    may ask for a broker to be stopped or started (``STOP id``, answered ``DONE`` or ``FAILED why``)
    until it says ``RESULT result reason``. Then it says ``READY``, or ends because threads of the
    test are left.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def listed(self) -> list[list[str]]:
        """Start the process, and return the fields of each test that it lists."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        tests = []
        while (line := self._hear()) != [LISTED]:
            if line is None:
                raise RuntimeError(f"Java ended before it had listed the tests: see {self._log}")
            tests.append(line[1:])
        return tests

    def run(
        self, name: str, addresses: Sequence[str], operations: Mapping[str, Callable[[int], None]]
    ) -> tuple[Result, str]:
        """Run a test; ``addresses`` are those of the brokers. Returns its result and the reason."""
        if self._process is None:
            self.listed()
        self._say("RUN", name, *addresses)
        while (line := self._hear()) is not None:
            if line[0] == "RESULT":
                self._go_on()
                return cast(Result, line[1]), line[2]
            self._say(*_carry_out(operations[line[0]], int(line[1])))
        self.end()
        return "failed", "the Java process ended"

    def end(self) -> None:
        """End the process; the next test starts it again."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _go_on(self) -> None:
        """Wait until the threads of the test have ended, or the process has."""
        if self._hear() is None:
            self.end()

    def _say(self, *fields: str) -> None:
        pipe = cast(IO[str], cast("subprocess.Popen[str]", self._process).stdin)
        pipe.write("\t".join(fields) + "\n")
        pipe.flush()

    def _hear(self) -> list[str] | None:
        pipe = cast(IO[str], cast("subprocess.Popen[str]", self._process).stdout)
        line = pipe.readline()
        return line.rstrip("\n").split("\t") if line else None


def _carry_out(operation: Callable[[int], None], broker: int) -> tuple[str, ...]:
    try:
        operation(broker)
    except LocalClusterError as error:
        return "FAILED", " ".join(str(error).split())
    return ("DONE",)
