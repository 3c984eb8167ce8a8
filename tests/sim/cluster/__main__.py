"""Run seeds of the cluster's simulator, replay one, or hunt with one guard taken out.

python -m tests.sim.cluster --seeds 1-2000 --jobs 2
python -m tests.sim.cluster --seeds 63 --trace
python -m tests.sim.cluster --seeds 1-300 --without fetch-epoch
"""

import argparse
import sys
import time

from tests.sim.cluster.batch import report, run_seeds, with_fixed_hashes
from tests.sim.cluster.mutants import MUTANTS, mutant_named
from tests.sim.cluster.simulation import STEPS, simulate

PROGRESS_EVERY = 100


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="1-100", help="one seed, or a range as 1-2000")
    parser.add_argument("--steps", type=int, default=STEPS, help="faults per run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--without", metavar="GUARD", choices=[m.name for m in MUTANTS])
    parser.add_argument("--trace", action="store_true", help="of one seed: everything it does")
    options = parser.parse_args()
    with_fixed_hashes()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.trace:
        mutant = mutant_named(options.without) if options.without else None
        outcome = simulate(seeds[0], steps=options.steps, mutant=mutant, echo=_say)
        _say(f"seed {seeds[0]}: {outcome.violation or 'clean'}, trace {outcome.trace_digest}")
        return 1 if outcome.violation else 0
    return _run(seeds, options)


def _run(seeds: range, options: argparse.Namespace) -> int:
    began, failed, done = time.monotonic(), 0, 0
    events = acknowledged = consumed = leaderships = 0
    for outcome in run_seeds(
        seeds, steps=options.steps, jobs=options.jobs, without=options.without
    ):
        done += 1
        events += outcome.events
        acknowledged += outcome.acknowledged
        consumed += outcome.consumed
        leaderships += outcome.leaderships
        if outcome.violation is not None:
            failed += 1
            _say(report(outcome, steps=options.steps, without=options.without))
            if options.without:
                break
        if done % PROGRESS_EVERY == 0:
            _say(f"{done} seeds, {failed} violations, {time.monotonic() - began:.0f} s")
    _say(
        f"{done} seeds, {events / max(1, done):.0f} events each: {failed} violations; "
        f"{acknowledged} records acknowledged by all, {consumed} batches consumed, "
        f"{leaderships} leaderships, {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
