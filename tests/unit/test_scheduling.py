"""A broker whose system does not let it choose its scheduling policy says so, and runs."""

import errno
import os

import pytest

from quorate.broker import process
from quorate.broker.config.spec import BROKER_SPEC

MINIMUM = {"broker.id": "1", "quorum.bootstrap.servers": "localhost:1", "log.dir": "log"}


@pytest.mark.parametrize("policy", ["batch", "normal"])
def test_a_refusal_is_told(
    policy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    monkeypatch.setattr(os, "SCHED_BATCH", 3, raising=False)
    process._schedule(BROKER_SPEC.parse(MINIMUM | {"scheduling.policy": policy}))
    told = "scheduling.policy=batch has no effect: [Errno 1] Operation not permitted"
    assert caplog.messages == ([told] if policy == "batch" else [])
