"""pytest fixtures: clusters of a test, of a module, of a run and of all its workers; and topics.

docs/TESTING.md says when to use which. pytest imports this module in every run of every project
that has quorate installed: the cluster's code is loaded only when a fixture is used.
"""

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from quorate.client.admin import AdminClient
    from quorate.testing.group_consumers import GroupConsumers
    from quorate.testing.running import RunningCluster


_CLUSTERS = frozenset(
    {
        "quorate_cluster",
        "module_quorate_cluster",
        "session_quorate_cluster",
        "shared_quorate_cluster",
    }
)
"""The fixtures that start clusters; all others use one of them."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Load the code of clusters beside the tests that come first, if any test needs one.

    Not in a worker of pytest-xdist: most of them find a cluster that another one started.
    """
    if session.config.option.collectonly or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if any(not _CLUSTERS.isdisjoint(getattr(one, "fixturenames", ())) for one in session.items):
        from quorate.cluster.fork_server.fork_servers import load_fork_servers

        load_fork_servers()


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


@pytest.fixture(scope="session")
def session_quorate_cluster() -> Iterator[ClusterFactory]:
    """Give all tests of a run, or of a worker of pytest-xdist, one factory of clusters."""
    yield from _factory()


@pytest.fixture(scope="session")
def shared_quorate_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[RunningCluster]":
    """Give all tests of a run one cluster of one broker; workers of pytest-xdist share it."""
    from quorate.testing.shared_cluster import shared_cluster

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # Each worker has a folder of its own in it.
    with shared_cluster(folder) as cluster:
        yield cluster


class TopicFactory(Protocol):
    """Creates a topic with a name that no other test has, and returns the name."""

    def __call__(self, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str: ...


@pytest.fixture(scope="session")
def _shared_admin(shared_quorate_cluster: "RunningCluster") -> "Iterator[AdminClient]":
    with shared_quorate_cluster.admin() as admin:
        yield admin


@pytest.fixture
def quorate_topic(request: pytest.FixtureRequest, _shared_admin: "AdminClient") -> TopicFactory:
    """Give one test a factory of topics in the shared cluster: ``quorate_topic(partitions=3)``."""
    from quorate.client.results import NewTopic

    def create(*, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        topic = unique_name(request.node.name)
        new = NewTopic(name=topic, num_partitions=partitions, configs=configs or {})
        _shared_admin.create_topics([new])[0].raise_for_error()
        return topic

    return create


@pytest.fixture
def quorate_group(request: pytest.FixtureRequest) -> str:
    """Give one test the name of a consumer group that no other test has."""
    return unique_name(request.node.name)


@pytest.fixture
def quorate_consumer(
    shared_quorate_cluster: "RunningCluster", quorate_group: str
) -> "Iterator[GroupConsumers]":
    """Give one test consumers of its group: ``quorate_consumer("orders").poll(10)``.

    They have subscribed, read from the beginning, and are closed when the test ends.
    """
    from quorate.testing.group_consumers import GroupConsumers

    with ExitStack() as cleanup:
        yield GroupConsumers(shared_quorate_cluster.bootstrap, quorate_group, cleanup)


def unique_name(test: str) -> str:
    """Return a name for topics and groups that shows the test and is used once."""
    return f"{re.sub(r'[^a-zA-Z0-9._-]+', '-', test)[:100].strip('-')}-{uuid.uuid4().hex[:8]}"


def _factory() -> Iterator[ClusterFactory]:
    from quorate.testing.fast_settings import FAST_SETTINGS
    from quorate.testing.running import running_cluster

    with ExitStack() as clusters:

        def start(
            brokers: int = 1,
            voters: int = 1,
            *,
            config: Mapping[str, object] | None = None,
            **more_config: object,
        ) -> "RunningCluster":
            named = {key.replace("_", "."): value for key, value in more_config.items()}
            settings = {**FAST_SETTINGS, **(config or {}), **named}
            cluster = running_cluster(brokers, voters, config=settings)
            return clusters.enter_context(cluster)

        yield start
