"""Runs the test that guards each mutant: it must pass with the guard and fail without.

All of them run in one pytest session of this process. An item is run as it is, and then once more
for every mutant that it must notice.
"""

import contextlib
import io
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.ledger.code_mutants import CodeMutant, NoSuchGuard, without_guard

_QUIET: Final = (
    *("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("--timeout=30", "--timeout-method=signal"),
)


def caught(mutants: Iterable[CodeMutant]) -> Mapping[str, str]:
    """Return, by mutant, what is wrong with it, or "" if its test notices it."""
    prover = _Prover(list(mutants))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main([*_QUIET, *sorted(prover.wanted)], plugins=[prover])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}:\n{said.getvalue()}")
    return prover.problems


class _Prover:
    """A plugin of pytest that takes the place of its loop over the phases of a test."""

    def __init__(self, mutants: Collection[CodeMutant]) -> None:
        self._mutants = mutants
        self.problems = {one.name: f"{one.caught_by} was not run" for one in mutants}

    @property
    def wanted(self) -> set[str]:
        return {one.caught_by for one in self._mutants}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: pytest.Item | None) -> bool:  # noqa: ANN401
        """``item`` is an Item, of which a private method is called so that it can run again."""
        test_id = item.nodeid.partition("[")[0]
        own = [one for one in self._mutants if one.caught_by == test_id]
        fails = self._fails(item, None if own else nextitem)
        for place, mutant in enumerate(own, 1):
            if self.problems[mutant.name] == "":
                continue  # Another parameter of the test has noticed it.
            if fails:
                self.problems[mutant.name] = f"{item.nodeid} fails with the guard"
                continue
            try:
                with without_guard(mutant):
                    noticed = self._fails(item, nextitem if place == len(own) else None)
            except NoSuchGuard as error:
                self.problems[mutant.name] = str(error)
            else:
                missed = f"{test_id} passes without the guard"
                self.problems[mutant.name] = "" if noticed else missed
        return True

    @staticmethod
    def _fails(item: Any, nextitem: pytest.Item | None) -> bool:  # noqa: ANN401 - as above
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        return any(not one.passed for one in reports)
