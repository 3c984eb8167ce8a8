"""The quick start of the README, run with the programs of one environment."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

Run = Callable[..., str]
"""Runs a command in a folder and returns what it prints; see ``environments.run``."""


class Step(NamedTuple):
    """A command of the quick start, the texts that it must print, and what it reads."""

    words: Sequence[str]
    prints: Sequence[str] = ()
    stdin: str = ""


class WrongOutput(Exception):
    """A command of the quick start printed something else than it should."""


UP: Final = Step(("up", "--quorum", "3", "--brokers", "3", "--data", "./quorate-data", "--detach"))
TOPIC: Final = ("--topic", "events")
STEPS: Final = (
    Step(("topics", "create", *TOPIC, "--partitions", "6", "--replication-factor", "3")),
    Step(("produce", *TOPIC), stdin="one\ntwo\n"),
    Step(("consume", *TOPIC, "--from-beginning", "--timeout-ms", "2000"), prints=("one", "two")),
    Step(("status",), prints=("broker 1 ", "broker 2 ", "broker 3 ", "topics      2")),
)
DOWN: Final = Step(("down",), prints=("stopped 6 processes",))
ANY_PORT: Final = ("--port", "0", "--json")
"""What ``up`` gets beside the README's words: nothing is known of the ports of this machine."""


def run_quick_start(programs: Path, version: str, folder: Path, run: Run) -> float:
    """Run all steps and return how long ``quorate up`` took, in seconds.

    Raises:
        WrongOutput: a command printed something else.
        CommandFailed: a command ended with an error.
    """
    quorate = programs / "quorate"
    check(Step(("--version",), prints=(version,)), run([quorate, "--version"], folder))
    began = time.monotonic()
    state = json.loads(run([quorate, *UP.words, *ANY_PORT], folder))
    seconds = time.monotonic() - began
    try:
        if len(state["brokers"]) != 3:
            raise WrongOutput(f"quorate up: {state}")
        for step in STEPS:
            check(step, run([quorate, *step.words], folder, stdin=step.stdin))
    finally:
        said = run([quorate, *DOWN.words], folder)
    check(DOWN, said)
    return seconds


def check(step: Step, printed: str) -> None:
    """Hold that a command printed each text that it must.

    Raises:
        WrongOutput: one is missing.
    """
    missing = [text for text in step.prints if text not in printed]
    if missing:
        raise WrongOutput(
            f"quorate {' '.join(step.words)} printed {printed!r}, without {', '.join(missing)}"
        )
