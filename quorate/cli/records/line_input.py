"""Standard input of ``quorate produce``: lines of a pipe or file, or what a person types."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from quorate.cli.output import echo, echo_prompt

PROMPT: Final = ">"


def input_lines() -> Iterable[bytes]:
    """Return the lines of standard input. A person at a terminal is shown a prompt for each."""
    return _typed_lines() if is_typed() else sys.stdin.buffer


def is_typed() -> bool:
    """Return whether a person types the lines."""
    return sys.stdin.isatty()


def _typed_lines() -> Iterator[bytes]:
    while True:
        echo_prompt(PROMPT)
        line = sys.stdin.buffer.readline()
        if not line:
            echo(err=True)
            return
        yield line
