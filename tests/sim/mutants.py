"""Guards of the product, each with a way to take it out.

Only ever by replacing a method or a function while a simulation runs: the product itself has no
switch for it. Removing any of them must be noticed within ``WITHIN_SEEDS`` seeds.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

WITHIN_SEEDS: Final = 200


class Mutant(NamedTuple):
    """One guard less."""

    name: str
    guards: str
    """What it guards against."""
    applied: Callable[[], AbstractContextManager[Any]]


MUTANTS: Final[list[Mutant]] = []


def mutant_named(name: str) -> Mutant:
    """The mutant of that name.

    Raises:
        KeyError: there is none.
    """
    return {mutant.name: mutant for mutant in MUTANTS}[name]


def replacing(name: str, guards: str, owner: object, attribute: str, value: object) -> None:
    """Register a mutant that replaces one attribute."""
    MUTANTS.append(Mutant(name, guards, lambda: patch.object(owner, attribute, value)))
