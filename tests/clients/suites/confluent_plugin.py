"""A pytest plugin inside confluent-kafka-python's test run, which gets a cluster that runs already.

It imports nothing of ours, since the suite's own ``tests`` package is on the path then.
"""

import sys
from types import ModuleType


def _no_trivup() -> dict[str, ModuleType]:
    """Return what the suite names of the package that starts clusters."""
    modules = {name: ModuleType(name) for name in ("trivup", "trivup.clusters")}
    cluster = ModuleType("trivup.clusters.KafkaCluster")
    cluster.KafkaCluster = object  # type: ignore[attr-defined]
    return {**modules, cluster.__name__: cluster}


sys.modules.update(_no_trivup())
