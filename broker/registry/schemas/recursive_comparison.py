"""Comparison of schemas that may refer to themselves.

A pair of types whose comparison is under way already counts as compatible, because otherwise no
recursive type were compatible with itself. If such a pair turns out to be incompatible, what was
found by that assumption is found again without it, until nothing changes any more.
"""

from collections.abc import Callable, Hashable
from typing import Final

from quorate.common.schema_errors import SchemaTooComplex

STEPS_MAX: Final = 100_000
"""The most steps of the comparison of one pair of schemas, such as pairs of types."""

Problems = list[str]
"""Why data cannot be read, in words. It is empty if it can."""


class RecursiveComparison:
    """The comparisons of one pair of schemas."""

    def __init__(self) -> None:
        self._refuted: dict[Hashable, Problems] = {}
        self._found: dict[Hashable, Problems | None] = {}
        self._assumed = False
        self._steps = 0

    def run(self, compare: Callable[[], Problems]) -> Problems:
        """Return the problems that ``compare`` finds, which compares pairs by ``visit``."""
        while True:
            self._found, self._assumed = {}, False
            problems = compare()
            refuted = {pair: found for pair, found in self._found.items() if found}
            if not self._assumed or not refuted:
                return problems
            self._refuted |= refuted

    def visit(self, pair: Hashable, compare: Callable[[], Problems]) -> Problems:
        """Return the problems of one pair of types, which ``compare`` finds.

        Raises:
            SchemaTooComplex: there were too many pairs.
        """
        if pair in self._refuted:
            return self._refuted[pair]
        if pair in self._found:
            found = self._found[pair]
            self._assumed = self._assumed or found is None
            return found or []
        self.spend(1)
        self._found[pair] = None
        problems = self._found[pair] = compare()
        return problems

    def spend(self, steps: int) -> None:
        """Count steps of a comparison.

        Raises:
            SchemaTooComplex: there were too many.
        """
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise SchemaTooComplex(f"comparing the schemas takes more than {STEPS_MAX} steps")
