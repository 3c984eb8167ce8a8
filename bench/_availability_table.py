"""The table of docs/AVAILABILITY.md, which ``python -m bench.availability --docs`` updates."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench._support import Cell

_HEADER: Final = "| fault | victim | runs | stall | median | default client |"
_FIGURES: Final = ("stall s", "median s", "default client s")

Key = tuple[str, str]
"""Fault and victim."""


def rewritten(
    text: str, order: Sequence[Key], measured: Mapping[Key, Mapping[str, Cell]], runs: int
) -> str:
    """Return the page with one line per fault, in that order.

    A line that was not measured stays as it is. One that the bench does not know goes.

    Raises:
        ValueError: the page has no such table.
    """
    lines = text.split("\n")
    first = lines.index(_HEADER) + 2
    end = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    table = {_key(line): line for line in lines[first:end]}
    for key, figures in measured.items():
        shown = (f"{float(figures[name]):.1f}" for name in _FIGURES)
        table[key] = f"| {' | '.join((*key, str(runs), *shown))} |"
    return "\n".join([*lines[:first], *(table[key] for key in order if key in table), *lines[end:]])


def _key(line: str) -> Key:
    _, fault, victim, *_ = (cell.strip() for cell in line.split("|"))
    return fault, victim
