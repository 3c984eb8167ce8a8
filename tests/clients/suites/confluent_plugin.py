"""A pytest plugin inside confluent-kafka-python's test run, which gets a cluster that runs already.

It imports nothing of ours, since the suite's own ``tests`` package is on the path then.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


def _no_trivup() -> dict[str, ModuleType]:
    """Return what the suite names of the package that starts clusters."""
    modules = {name: ModuleType(name) for name in ("trivup", "trivup.clusters")}
    cluster = ModuleType("trivup.clusters.KafkaCluster")
    cluster.KafkaCluster = object  # type: ignore[attr-defined]
    return {**modules, cluster.__name__: cluster}


sys.modules.update(_no_trivup())


def pytest_sessionstart() -> None:
    """Give clusters that run already what the suite gives only those that it starts."""
    fixture: Any = importlib.import_module("tests.integration.cluster_fixture")
    fixture.ByoFixture.async_schema_registry = lambda cluster, conf=None: (
        fixture.AsyncSchemaRegistryClient({"url": cluster._sr_url, **(conf or {})})
    )
