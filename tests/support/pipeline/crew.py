"""The processes of a pipeline: started, killed, doubled, and what they wrote down."""

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.support.pipeline.journal import Event, Kind, count, events

SESSION_TIMEOUT_MS: Final = 2_000
"""So long a group misses a member that was killed."""
TRANSACTION_TIMEOUT_MS: Final = 10_000
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
    """A context manager that leaves no process behind."""

    folder: Path
    roles: Sequence[Role]
    seed: int
    _processes: list[_Process] = field(default_factory=list)

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
        """Kill one and start it anew, or start its successor while it is still at work; and start
        whoever has ended by itself.
        """
        victim = self._chance.choice(self._alive())
        doubled = self._chance.random() < 0.5
        if not doubled:
            victim.popen.kill()
            victim.popen.wait()
        if not doubled or "copier" in victim.role.name:
            self._start(victim.role)
        self.fill()

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
        deadline_s = time.monotonic() + _STOP_S
        for process in self._processes:
            process.popen.wait(max(0.0, deadline_s - time.monotonic()))

    def exit_codes(self) -> list[tuple[str, int]]:
        """Of all that have ended; negative: the signal that ended it."""
        return [
            (process.journal.stem, code)
            for process in self._processes
            if (code := process.popen.poll()) is not None
        ]

    def last_words(self, name: str) -> str:
        """What a process said, that ``exit_codes`` names so."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-_LAST_WORDS:]

    def journals(self, prefix: str) -> list[list[Event]]:
        """Of all processes that a role of such a name had, each in its order."""
        return [
            list(events(process.journal))
            for process in self._processes
            if process.role.name.startswith(prefix)
        ]

    def count(self, prefix: str, kind: Kind) -> int:
        """How often that has happened in such roles."""
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
