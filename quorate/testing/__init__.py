"""A real cluster inside a test: 1 voter and 1 broker, unless asked otherwise, in about a second.

With pytest, installing ``quorate`` is enough:

    def test_orders(quorate_cluster):
        cluster = quorate_cluster(brokers=3)
        produce_with_any_kafka_client(cluster.bootstrap)

Without: ``with running_cluster(brokers=3) as cluster: …``
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quorate.testing.running import RunningCluster as RunningCluster
    from quorate.testing.running import running_cluster as running_cluster

__all__ = ["RunningCluster", "running_cluster"]


def __getattr__(name: str) -> object:
    """Loaded on first use: pytest imports this package in every run, also of other projects."""
    if name in __all__:
        from quorate.testing import running

        return getattr(running, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
