"""All mutants. Importing this registers them."""

from tests.sim import mutants_disk, mutants_raft
from tests.sim.mutants import MUTANTS, mutant_named

__all__ = ["MUTANTS", "mutant_named", "mutants_disk", "mutants_raft"]
