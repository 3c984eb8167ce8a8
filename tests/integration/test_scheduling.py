"""What the scheduler knows of running brokers."""

import os
from pathlib import Path

import pytest

from quorate.testing.pytest_plugin import ClusterFactory

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="scheduling policies are Linux's"),
]


def policies(pid: int | None) -> set[int]:
    """The policies of all threads of a process."""
    return {os.sched_getscheduler(int(one.name)) for one in Path(f"/proc/{pid}/task").iterdir()}


@pytest.mark.parametrize(
    ("config", "policy"), [({}, os.SCHED_BATCH), ({"scheduling.policy": "normal"}, os.SCHED_OTHER)]
)
def test_brokers_interrupt_nobody_unless_they_are_told_to(
    quorate_cluster: ClusterFactory, config: dict[str, str], policy: int
) -> None:
    """Voters do little, and nobody is to wait for them."""
    cluster = quorate_cluster(brokers=1, config=config)
    assert policies(cluster.broker_pid(1)) == {policy}
    assert policies(cluster.voter_pid(1)) == {os.SCHED_OTHER}
