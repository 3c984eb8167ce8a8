"""Which tests of a suite are run."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tests.clients.suites.cases import Case
from tests.clients.suites.findings import Expected

_WILD: Final = frozenset("*?")


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
