"""The quorum's simulator, as batches and tests run it."""

from typing import Final

from tests.sim import mutants_disk, mutants_raft, mutants_stale
from tests.sim.batch import Simulator
from tests.sim.mutants import MUTANTS, WITHIN_SEEDS
from tests.sim.simulation import STEPS, simulate

__all__ = ["QUORUM", "mutants_disk", "mutants_raft", "mutants_stale"]

QUORUM: Final = Simulator(
    "tests.sim",
    simulate,
    STEPS,
    MUTANTS,
    WITHIN_SEEDS,
    "make sim",
    ("writes", "effects", "reads", "virtual_s"),
    "{writes} writes ({effects} changed something) and {reads} reads acknowledged in "
    "{virtual_s} s of virtual time",
)
