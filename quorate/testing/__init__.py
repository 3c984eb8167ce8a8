"""A real cluster inside a test: by default one voter and one broker, in less than a second.

On Linux, and where the cores are free, the first cluster of a process takes 0.6 s, and each later
one 0.3 s.

With pytest, it is enough to install ``quorate``:

    def test_orders(shared_quorate_cluster, quorate_topic):
        produce_with_any_kafka_client(shared_quorate_cluster.bootstrap, quorate_topic())

    def test_failover(quorate_cluster):
        cluster = quorate_cluster(brokers=3)
        cluster.kill_broker(cluster.controller_id())

docs/TESTING.md has all fixtures. Without pytest: ``with running_cluster(brokers=3) as cluster: …``
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.testing.running import RunningCluster as RunningCluster
    from quorate.testing.running import running_cluster as running_cluster

__all__ = ["RunningCluster", "running_cluster"]


def __getattr__(name: str) -> object:
    """Load a name on first use: pytest imports this package in every run, also of other
    projects."""
    if name in __all__:
        from quorate.testing import running

        return getattr(running, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
