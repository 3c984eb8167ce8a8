"""Many seeds, each in a process whose hashes have one order: so a seed is the same run everywhere.

Sets and persistent maps of strings are walked in the order of their hashes, in the product as well.
"""

import gc
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.sim.cluster.mutants import mutant_named
from tests.sim.cluster.simulation import STEPS, Outcome, simulate

HASH_SEED = "0"


def run_seeds(
    seeds: Iterable[int], *, steps: int = STEPS, jobs: int = 1, without: str | None = None
) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds."""
    run = partial(run_seed, steps=steps, without=without)
    if jobs == 1 and os.environ.get("PYTHONHASHSEED") == HASH_SEED:
        _forget_what_is_there()
        yield from map(run, seeds)
        return
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    try:
        with ProcessPoolExecutor(
            jobs, mp_context=get_context("spawn"), initializer=_forget_what_is_there
        ) as pool:
            yield from pool.map(run, seeds, chunksize=4)
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def _forget_what_is_there() -> None:
    """Modules need not be looked through for garbage after every run."""
    gc.collect()
    gc.freeze()


def run_seed(seed: int, *, steps: int = STEPS, without: str | None = None) -> Outcome:
    return simulate(seed, steps=steps, mutant=mutant_named(without) if without else None)


def first_violation(
    without: str, seeds: Iterable[int], *, steps: int = STEPS, jobs: int = 1
) -> Outcome | None:
    """The first seed that notices that a guard is missing."""
    outcomes = run_seeds(seeds, steps=steps, jobs=jobs, without=without)
    return next((outcome for outcome in outcomes if outcome.violation), None)


def report(outcome: Outcome, *, steps: int, without: str | None = None) -> str:
    """A violation, for people: how it came, and how to see it again."""
    removed = f" WITHOUT={without}" if without else ""
    return "\n".join(
        [
            *outcome.last_lines,
            f"seed {outcome.seed}: {outcome.violation}",
            f"again: make sim CLUSTER=1 SEED={outcome.seed} STEPS={steps}{removed}",
        ]
    )


def with_fixed_hashes() -> None:
    """Start this program again with the one order of hashes, unless it has it."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.sim.cluster", *sys.argv[1:]])
