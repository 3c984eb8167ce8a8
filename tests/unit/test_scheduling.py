"""A broker whose system does not let it choose its scheduling policy says so, and runs."""

import errno
import os

import pytest

from quorate.broker import process
from quorate.broker.config.spec import BROKER_SPEC
from quorate.common.scheduling import SchedulingPolicy, schedule_as

MINIMUM = {"broker.id": "1", "quorum.bootstrap.servers": "localhost:1", "log.dir": "log"}


pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_BATCH"), reason="scheduling policies are Linux's"
)


@pytest.mark.parametrize("policy", ["batch", "normal"])
def test_a_refusal_is_told(
    policy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    caplog.set_level("INFO")
    process._schedule(BROKER_SPEC.parse(MINIMUM | {"scheduling.policy": policy}))
    told = "scheduling.policy=batch is not allowed here: [Errno 1] Operation not permitted"
    assert caplog.messages == ([told] if policy == "batch" else [])


def test_a_policy_that_the_process_was_started_with_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it is not changed")

    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_FIFO)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    schedule_as(SchedulingPolicy.BATCH)
