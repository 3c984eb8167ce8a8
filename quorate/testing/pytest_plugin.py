"""pytest fixtures: ``quorate_cluster`` and ``module_quorate_cluster``.

pytest imports this module in every run of every project that has quorate installed: the cluster's
code is loaded only when a fixture is used.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from quorate.testing.running import RunningCluster


class ClusterFactory(Protocol):
    """Starts a cluster that ends with the fixture; it may be called more than once."""

    def __call__(
        self,
        brokers: int = 1,
        voters: int = 1,
        *,
        config: Mapping[str, object] | None = None,
        **more_config: object,
    ) -> "RunningCluster": ...


@pytest.fixture
def quorate_cluster() -> Iterator[ClusterFactory]:
    """Give one test a factory of real clusters: ``quorate_cluster(brokers=3, voters=3)``."""
    yield from _factory()


@pytest.fixture(scope="module")
def module_quorate_cluster() -> Iterator[ClusterFactory]:
    """Give all tests of a module one factory of clusters: ``module_quorate_cluster(brokers=3)``."""
    yield from _factory()


def _factory() -> Iterator[ClusterFactory]:
    from quorate.testing.running import running_cluster

    with ExitStack() as clusters:

        def start(
            brokers: int = 1,
            voters: int = 1,
            *,
            config: Mapping[str, object] | None = None,
            **more_config: object,
        ) -> "RunningCluster":
            cluster = running_cluster(brokers, voters, config={**(config or {}), **more_config})
            return clusters.enter_context(cluster)

        yield start
