"""Many seeds, on several processes."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.sim.mutant_table import mutant_named
from tests.sim.simulation import STEPS, Outcome, simulate


def run_seeds(
    seeds: Iterable[int], *, steps: int = STEPS, jobs: int = 1, without: str | None = None
) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds."""
    run = partial(_run, steps=steps, without=without)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, seeds, chunksize=8)


def first_violation(without: str, seeds: Iterable[int], *, steps: int = STEPS) -> Outcome | None:
    """The first seed that notices that a guard is missing."""
    outcomes = run_seeds(seeds, steps=steps, without=without)
    return next((outcome for outcome in outcomes if outcome.violation), None)


def replay_command(outcome: Outcome, *, steps: int, without: str | None = None) -> str:
    """What shows the run again."""
    removed = f" WITHOUT={without}" if without else ""
    return f"make sim SEED={outcome.seed} STEPS={steps}{removed}"


def report(outcome: Outcome, *, steps: int, without: str | None = None) -> str:
    """A violation, for people: how it came, and how to see it again."""
    lines = [*outcome.last_lines, f"seed {outcome.seed}: {outcome.violation}"]
    lines.append(f"again: {replay_command(outcome, steps=steps, without=without)}")
    return "\n".join(lines)


def _run(seed: int, *, steps: int, without: str | None) -> Outcome:
    return simulate(seed, steps=steps, mutant=mutant_named(without) if without else None)
