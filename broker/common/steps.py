"""Work in steps, between which others may have a turn.

Whoever drives the steps decides whether others do: ``quota.work_turns`` for what clients ask.
"""

import heapq
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work in steps, whose result is a ``T``."""

ITEMS_IN_A_STEP: Final = 64
SORTED_IN_A_STEP: Final = 512
"""A sort compares each item some ten times, and that in machine code."""


def in_steps(items: Iterable[T], count: int = ITEMS_IN_A_STEP) -> Steps[list[T]]:
    """Return the items as a list. A step takes ``count`` of them."""
    remaining = iter(items)
    taken = [*islice(remaining, count)]
    while more := [*islice(remaining, count)]:
        yield
        taken += more
    return taken


def sorted_in_steps(items: Iterable[T], key: Callable[[T], Any]) -> Steps[list[T]]:
    """Return the items in order, like ``sorted``."""
    remaining = iter(items)
    runs: list[list[T]] = []
    while run := sorted(islice(remaining, SORTED_IN_A_STEP), key=key):
        if runs:
            yield
        runs.append(run)
    if len(runs) == 1:
        return runs[0]
    return (yield from in_steps(heapq.merge(*runs, key=key)))
