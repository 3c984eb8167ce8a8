"""The cluster's simulator, as batches and tests run it."""

from typing import Final

from tests.sim.batch import Simulator
from tests.sim.cluster.mutants import MUTANTS, WITHIN_SEEDS
from tests.sim.cluster.simulation import STEPS, simulate

CLUSTER: Final = Simulator(
    "tests.sim.cluster",
    simulate,
    STEPS,
    MUTANTS,
    WITHIN_SEEDS,
    "make sim CLUSTER=1",
    ("events", "acknowledged", "consumed", "leaderships", "ended"),
    "{events} events, {acknowledged} records acknowledged by all, {consumed} batches consumed, "
    "{leaderships} leaderships, {ended} transactions ended",
    hashes_matter=True,
)
