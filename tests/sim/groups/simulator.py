"""The simulator of groups, as batches and tests run it."""

from typing import Final

from tests.sim.batch import Simulator
from tests.sim.cluster.simulation import STEPS
from tests.sim.groups.mutants import MUTANTS
from tests.sim.groups.simulation import simulate_groups
from tests.sim.mutants import WITHIN_SEEDS

GROUPS: Final = Simulator(
    "tests.sim.groups",
    simulate_groups,
    STEPS,
    MUTANTS,
    WITHIN_SEEDS,
    "python -m tests.sim.groups",
    ("events", "leaderships", "assignments", "commits"),
    "{events} events, {leaderships} leaderships, {assignments} partitions given to members, "
    "{commits} offsets committed",
    hashes_matter=True,
)
