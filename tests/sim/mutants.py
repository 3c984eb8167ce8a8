"""Guards of the product, each with a way to take it out.

Only ever by replacing a method or a function while a simulation runs: the product has no switch
for it. The removal of each must be noticed within ``WITHIN_SEEDS`` seeds (``test_mutants``).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

WITHIN_SEEDS: Final = 200

Replacement = tuple[object, str, object]
"""(owner, attribute, what it is replaced by)."""


class Mutant(NamedTuple):
    """One guard less."""

    name: str
    without: str
    """The words for what the product then lacks."""
    replacements: Callable[[], list[Replacement]]

    def applied(self) -> AbstractContextManager[None]:
        """While this lasts, the guard is gone."""
        return _replaced(self.replacements())


MUTANTS: Final[list[Mutant]] = []


def mutant(
    name: str, without: str
) -> Callable[[Callable[[], list[Replacement]]], Callable[[], list[Replacement]]]:
    """Registers a function that says what is replaced."""

    def register(replacements: Callable[[], list[Replacement]]) -> Callable[[], list[Replacement]]:
        MUTANTS.append(Mutant(name, without, replacements))
        return replacements

    return register


@contextmanager
def _replaced(replacements: list[Replacement]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, attribute, value in replacements:
            stack.enter_context(patch.object(owner, attribute, value))
        yield


def nothing(*_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401 - takes whatever there was
    """Takes the place of what is left out."""
