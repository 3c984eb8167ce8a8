"""The command line of ``python -m tests.sim`` and ``python -m tests.sim.cluster``."""

import argparse
import os
import sys
import time
from collections import Counter
from typing import Final, TypeVar

from tests.sim.batch import HASH_SEED, Ran, Simulator

PROGRESS_EVERY: Final = 100

R = TypeVar("R", bound=Ran)


def main(simulator: Simulator[R], description: str | None) -> int:
    """Do what the arguments of this program say; its exit status."""
    options = _options(simulator, description)
    if simulator.hashes_matter and os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", simulator.module, *sys.argv[1:]])
    if options.measure is not None:
        return _measure(simulator, options.measure, options.jobs)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.trace:
        return _trace(simulator, seeds[0], options)
    return _run(simulator, seeds, options)


def _options(simulator: Simulator[R], description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {simulator.module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    guards = [mutant.name for mutant in simulator.mutants]
    parser.add_argument("--seeds", default="1-100", help="one seed, or a range as 1-2000")
    parser.add_argument("--steps", type=int, default=simulator.steps, help="faults per run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--without", metavar="GUARD", choices=guards)
    parser.add_argument("--trace", action="store_true", help="of one seed: everything it does")
    parser.add_argument(
        "--measure",
        metavar="GUARD",
        nargs="*",
        help="the table of docs/RULES.md: how soon it is noticed that a guard is missing",
    )
    return parser.parse_args()


def _trace(simulator: Simulator[R], seed: int, options: argparse.Namespace) -> int:
    mutant = simulator.mutant(options.without)
    outcome = simulator.simulate(seed, steps=options.steps, mutant=mutant, echo=_say)
    _say(f"seed {seed}: {outcome.violation or 'clean'}, trace {outcome.trace_digest}")
    return 1 if outcome.violation else 0


def _run(simulator: Simulator[R], seeds: range, options: argparse.Namespace) -> int:
    began, failed, done = time.monotonic(), 0, 0
    sums = Counter(dict.fromkeys(simulator.counted, 0))
    steps, without = options.steps, options.without
    for outcome in simulator.run(seeds, steps=steps, jobs=options.jobs, without=without):
        done += 1
        sums.update({name: int(getattr(outcome, name)) for name in simulator.counted})
        if outcome.violation is not None:
            failed += 1
            _say(simulator.report(outcome, steps=steps, without=without))
            if without:
                break
        if done % PROGRESS_EVERY == 0:
            _say(f"{done} seeds, {failed} violations, {time.monotonic() - began:.0f} s")
    told = simulator.told.format(**sums)
    _say(f"{done} seeds: {failed} violations; {told}; {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _measure(simulator: Simulator[R], guards: list[str], jobs: int) -> int:
    """A row per mutant, all of them or those named."""
    missed = 0
    for mutant in simulator.mutants:
        if guards and mutant.name not in guards:
            continue
        found = simulator.first_violation(mutant.name, jobs=jobs)
        missed += found is None
        seed, what = ("none", "") if found is None else (found.seed, found.violation)
        _say(f"| {mutant.name} | {mutant.without} | {seed} | {what} |")
    return 1 if missed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
