"""Which tests of a suite are run."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.findings import Expected

_WILD: Final = frozenset("*?")
ALL_TESTS: Final = "(all)"
"""Stands for the tests of a class that is not run, whose names nobody has listed."""


@dataclass(frozen=True, slots=True)
class Selection:
    """``only``: a part of a name, or a pattern with ``*``; empty for all tests.

    ``expected`` says which tests are not applicable. They are told of and not run, unless
    ``with_all``.
    """

    expected: Expected
    only: str = ""
    with_all: bool = False

    @property
    def is_whole(self) -> bool:
        return not self.only

    def includes(self, name: str) -> bool:
        if _WILD & set(self.only):
            return fnmatchcase(name, self.only.replace("[", "[[]"))
        return self.only in name

    def split(self, names: Iterable[str]) -> tuple[list[str], list[Case]]:
        """Return the tests to run, and those that are only told of."""
        chosen = [name for name in names if self.includes(name)]
        run = [name for name in chosen if self.with_all or self.expected.is_applicable(name)]
        left = [Case(name, "skipped", "not run") for name in chosen if name not in set(run)]
        return run, left

    def split_classes(self, names: Iterable[str]) -> tuple[list[str], list[Case]]:
        """Return the classes of which some test may be run, and those that are only told of.

        A pattern that names a method says its class before the first dot.
        """
        return self._split_containers(names, ".")

    def split_files(self, names: Iterable[str]) -> tuple[list[str], list[Case]]:
        """Do the same for files, whose names end before a colon."""
        return self._split_containers(names, ": ")

    def _split_containers(
        self, names: Iterable[str], separator: str
    ) -> tuple[list[str], list[Case]]:
        wanted = replace(self, only=self.only.partition(separator)[0])
        everything = {n: f"{n}{separator}{ALL_TESTS}" for n in names if wanted.includes(n)}
        run = [n for n, all in everything.items() if self.with_all or self._applies(all)]
        left = [Case(everything[n], "skipped", "not run") for n in everything if n not in set(run)]
        return run, left

    def _applies(self, name: str) -> bool:
        return self.expected.is_applicable(name)
