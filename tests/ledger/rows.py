"""The rows of the ledger, and what is wrong with them."""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.ledger.code_mutants import CodeMutant
from tests.ledger.server_fixtures import NoSuchTest, is_slow, starts_servers
from tests.support.demands import Demand

REAL: Final = "real"
MUTANT: Final = "mutant"


def problem_of_test(test_id: str) -> str:
    """Return why the test does not show a demand with server processes, or ""."""
    try:
        if not starts_servers(test_id):
            return f"{test_id} starts no server processes"
        return f"{test_id} is not a part of `make test`" if is_slow(test_id) else ""
    except NoSuchTest as error:
        return str(error)


def has_real_test(demand: Demand) -> bool:
    """Whether a test with server processes shows the demand."""
    return bool(demand.real) and not any(map(problem_of_test, demand.real))


def problems(demands: Mapping[str, Demand], mutants: Mapping[str, CodeMutant]) -> Iterator[str]:
    """Yield what is missing or wrong, and gaps that are closed but still listed as open."""
    for demand in demands.values():
        yield from (f"{demand.id}: {why}" for why in _of_row(demand, mutants))
    named = {demand.mutant for demand in demands.values()}
    yield from (f"mutant {name}: no demand names it" for name in mutants if name not in named)
    for mutant in mutants.values():
        try:
            is_slow(mutant.caught_by)
        except NoSuchTest as error:
            yield f"mutant {mutant.name}: {error}"


def _of_row(demand: Demand, mutants: Mapping[str, CodeMutant]) -> Iterator[str]:
    yield from filter(None, map(problem_of_test, demand.real))
    if demand.mutant and demand.mutant not in mutants:
        yield f"there is no mutant {demand.mutant}"
    closed = {REAL: bool(demand.real), MUTANT: bool(demand.mutant)}
    for what, is_closed in closed.items():
        if is_closed and what in demand.gaps:
            yield f"its gap {what!r} is closed: take it off the list"
        if not is_closed and what not in demand.gaps:
            yield f"it has no {what!r}"
    yield from (f"there is no gap {what!r}" for what in demand.gaps if what not in closed)
