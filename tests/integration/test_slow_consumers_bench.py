"""The benchmark's hostile clients do to a broker what they say."""

import pytest

from bench._hostile_clients import LARGE_REQUEST_BYTES
from bench.slow_consumers import BOUND_MB, QUIET, SCENARIOS, Case
from quorate.testing.pytest_plugin import ClusterFactory

LARGE = "requests of 100 MB"


@pytest.mark.slow
def test_a_large_request_is_seen_in_the_broker_s_memory(quorate_cluster: ClusterFactory) -> None:
    assert {QUIET, LARGE} <= SCENARIOS.keys()
    found = Case(quorate_cluster(), [QUIET, LARGE], seconds=4.0).measure()
    assert found[QUIET]["more memory MB"] < 10
    assert 0.5 * LARGE_REQUEST_BYTES / 1e6 < found[LARGE]["more memory MB"] < BOUND_MB
    assert all(figures["p99 ms"] >= figures["p50 ms"] > 0 for figures in found.values())
