"""These tests look at what the scheduler knows of running brokers."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from quorate.testing.pytest_plugin import ClusterFactory

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="scheduling policies are Linux's"),
]


def policies(pid: int | None) -> set[int]:
    """The policies of all threads of a process."""
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            found.add(os.sched_getscheduler(int(thread.name)))
    return found


@pytest.mark.parametrize(
    ("config", "is_batch"), [({}, True), ({"scheduling.policy": "normal"}, False)]
)
def test_brokers_interrupt_nobody_unless_they_are_told_to(
    quorate_cluster: ClusterFactory, config: dict[str, str], is_batch: bool
) -> None:
    """Voters do little, and nobody is to wait for them."""
    cluster = quorate_cluster(brokers=1, config=config)
    own = os.sched_getscheduler(0)
    assert policies(cluster.broker_pid(1)) == {os.SCHED_BATCH if is_batch else own}
    assert policies(cluster.voter_pid(1)) == {own}
