"""The processes of a pipeline: started, killed, stopped, doubled, and what they wrote down."""

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.support.pipeline.journal import Event, Kind, count, events

SESSION_TIMEOUT_MS: Final = 2_000
"""The time for which a group misses a member that was killed."""
TRANSACTION_TIMEOUT_MS: Final = 10_000
_RESUME_CHANCE: Final = 0.4
"""The chance, at each disturbance, that a stopped process goes on. Most go on when others have
taken over, some only when their transaction has timed out as well."""
_STOP_S: Final = 60.0
_LAST_WORDS: Final = 2_000


@dataclass(frozen=True)
class Role:
    """A place in the pipeline, filled by one process after the other.

    ``arguments``: of its module, but for the journal and the seed.
    """

    name: str
    module: str
    arguments: Sequence[str]


def reader(number: int, bootstrap: str, topic: str, group: str) -> Role:
    """A member of a plain consumer group."""
    given = [bootstrap, topic, "--group", group]
    timeout = ["--session-timeout-ms", str(SESSION_TIMEOUT_MS)]
    return Role(f"reader-{number}", "tests.support.pipeline.reader", [*given, *timeout])


def copier(number: int, bootstrap: str, source: str, target: str, group: str) -> Role:
    """A transactional id."""
    name = f"copier-{number}"
    given = [bootstrap, source, target, "--group", group, "--name", name]
    timeouts = ["--session-timeout-ms", str(SESSION_TIMEOUT_MS)]
    timeouts += ["--transaction-timeout-ms", str(TRANSACTION_TIMEOUT_MS)]
    return Role(name, "tests.support.pipeline.copier", [*given, *timeouts])


@dataclass
class _Process:
    role: Role
    journal: Path
    popen: "subprocess.Popen[bytes]"


@dataclass
class Crew:
    """A context manager that leaves no process behind.

    ``stops``: how often one that is disturbed only stops, and goes on later with what it knew,
    from 0 to 1; never two at once, so that there is always somebody to take over.
    """

    folder: Path
    roles: Sequence[Role]
    seed: int
    stops: float = 0.0
    _processes: list[_Process] = field(default_factory=list)
    _stopped: _Process | None = None

    def __enter__(self) -> Self:
        self._chance = random.Random(self.seed)
        self._seeds = itertools.count(1)
        for role in self.roles:
            self._start(role)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.popen.kill()
            process.popen.wait()

    def disturb(self) -> None:
        """Kill or stop one, or leave it at work; start its successor; and start whoever has ended
        by itself. Who was stopped before goes on now and then, as a zombie perhaps.
        """
        if self._chance.random() < _RESUME_CHANCE:
            self.go_on()
        at_work = [process for process in self._alive() if process is not self._stopped]
        victim = self._chance.choice(at_work)
        doubled = self._chance.random() < 0.5
        if self._stopped is None and self._chance.random() < self.stops:
            victim.popen.send_signal(signal.SIGSTOP)
            self._stopped = victim
        elif not doubled:
            victim.popen.kill()
            victim.popen.wait()
        if doubled and "copier" in victim.role.name:
            self._start(victim.role)
        self.fill()

    def go_on(self) -> None:
        """Let the stopped process go on."""
        if self._stopped is not None:
            self._stopped.popen.send_signal(signal.SIGCONT)
            self._stopped = None

    def fill(self) -> None:
        """One process for every role that has none."""
        filled = {process.role.name for process in self._alive()}
        for role in self.roles:
            if role.name not in filled:
                self._start(role)

    def stop(self) -> None:
        """Have everybody finish; those that were fenced have ended already.

        Raises:
            subprocess.TimeoutExpired: somebody does not end.
        """
        for process in self._alive():
            process.popen.terminate()
        self.go_on()
        deadline_s = time.monotonic() + _STOP_S
        for process in self._processes:
            process.popen.wait(max(0.0, deadline_s - time.monotonic()))

    def exit_codes(self) -> list[tuple[str, int]]:
        """Return the exit codes of all processes that have ended; negative: the signal that ended
        it."""
        return [
            (process.journal.stem, code)
            for process in self._processes
            if (code := process.popen.poll()) is not None
        ]

    def last_words(self, name: str) -> str:
        """Return the end of the output of a process, by the name that ``exit_codes`` gives it."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-_LAST_WORDS:]

    def journals(self, prefix: str) -> list[list[Event]]:
        """Return the events of every process of the roles whose names begin so, each in its
        order."""
        return [
            list(events(process.journal))
            for process in self._processes
            if process.role.name.startswith(prefix)
        ]

    def count(self, prefix: str, kind: Kind) -> int:
        """Return how often that has happened in such roles."""
        return sum(
            count(process.journal, kind)
            for process in self._processes
            if process.role.name.startswith(prefix)
        )

    def _alive(self) -> list[_Process]:
        return [process for process in self._processes if process.popen.poll() is None]

    def _start(self, role: Role) -> None:
        seed = next(self._seeds)
        journal = self.folder / f"{role.name}.{seed}.jsonl"
        journal.touch()
        command = [sys.executable, "-m", role.module, *role.arguments, str(journal)]
        with journal.with_suffix(".log").open("wb") as said:
            popen = subprocess.Popen([*command, "--seed", str(seed)], stdout=said, stderr=said)
        self._processes.append(_Process(role, journal, popen))
