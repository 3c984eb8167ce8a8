"""Many seeds of a simulator, here or on several processes, whole or with one guard taken out."""

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Final, Generic, Protocol, TypeVar

from tests.sim.mutants import Mutant

HASH_SEED: Final = "0"
SEEDS_AT_ONCE: Final = 4
"""That a process is given."""


class Ran(Protocol):
    """The outcome of a run, whatever was simulated."""

    @property
    def seed(self) -> int: ...
    @property
    def violation(self) -> str | None: ...
    @property
    def trace_digest(self) -> str: ...
    @property
    def last_lines(self) -> list[str]: ...


R = TypeVar("R", bound=Ran)
Outcome = TypeVar("Outcome", bound=Ran, covariant=True)


class Simulate(Protocol[Outcome]):
    """Runs one seed."""

    def __call__(
        self,
        seed: int,
        *,
        steps: int,
        mutant: Mutant | None = None,
        echo: Callable[[str], None] | None = None,
    ) -> Outcome: ...


@dataclass(frozen=True)
class Simulator(Generic[R]):
    """One of the simulators, and how it is run. Functions are named, so that processes find them.

    ``replay``: what shows one of its runs. ``counted``: fields of its outcomes that a batch adds
    up, ``told``: what it says of the sums. ``hashes_matter``: sets and persistent maps of strings
    are walked in the order of their hashes, in the product as well, and it shows; so a seed is the
    same run only in processes whose hashes have one order.
    """

    module: str
    simulate: Simulate[R]
    steps: int
    mutants: Sequence[Mutant]
    within_seeds: int
    """The number of seeds of which at least one must notice that a guard is missing."""
    replay: str
    counted: tuple[str, ...]
    told: str
    hashes_matter: bool = False

    def mutant(self, name: str | None) -> Mutant | None:
        """The mutant of that name, None if no guard is missing.

        Raises:
            KeyError: there is none.
        """
        return None if name is None else {mutant.name: mutant for mutant in self.mutants}[name]

    def run(
        self,
        seeds: Iterable[int],
        *,
        steps: int | None = None,
        jobs: int = 1,
        without: str | None = None,
    ) -> Iterator[R]:
        """Outcomes in the order of the seeds."""
        run = partial(_run, self.simulate, steps or self.steps, self.mutant(without))
        if jobs == 1 and not self.hashes_matter:
            yield from map(run, seeds)
        elif jobs == 1 and os.environ.get("PYTHONHASHSEED") == HASH_SEED:
            _forget_what_is_there()
            yield from map(run, seeds)
        else:
            with (
                _fixed_hashes(),
                ProcessPoolExecutor(
                    jobs, mp_context=get_context("spawn"), initializer=_forget_what_is_there
                ) as pool,
            ):
                yield from pool.map(run, seeds, chunksize=SEEDS_AT_ONCE)

    def first_violation(
        self, without: str, seeds: Iterable[int] | None = None, *, jobs: int = 1
    ) -> R | None:
        """Return the outcome of the first seed that notices that a guard is missing; None if none
        does."""
        outcomes = self.run(seeds or range(1, self.within_seeds + 1), jobs=jobs, without=without)
        return next((outcome for outcome in outcomes if outcome.violation), None)

    def report(self, outcome: R, *, steps: int | None = None, without: str | None = None) -> str:
        """A violation, for people: how it came, and how to see it again."""
        removed = f" WITHOUT={without}" if without else ""
        return "\n".join(
            [
                *outcome.last_lines,
                f"seed {outcome.seed}: {outcome.violation}",
                f"again: {self.replay} SEED={outcome.seed} STEPS={steps or self.steps}{removed}",
            ]
        )


def _run(simulate: Simulate[R], steps: int, mutant: Mutant | None, seed: int) -> R:
    return simulate(seed, steps=steps, mutant=mutant)


def _forget_what_is_there() -> None:
    """Modules need not be looked through for garbage after every run."""
    gc.collect()
    gc.freeze()


@contextmanager
def _fixed_hashes() -> Iterator[None]:
    """Processes that begin meanwhile have one order of hashes."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before
