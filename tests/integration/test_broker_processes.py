"""The life and death of a host's processes, without brokers in them: real forks and signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.cli import alive
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 20
ALONE_S = 4
"""Who is left behind sleeps on for longer."""


@contextmanager
def host(*brokers: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.support.sleeping_brokers", *brokers]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def asleep(process: subprocess.Popen[str], count: int) -> dict[str, int]:
    """Process ids of so many brokers, once they sleep."""
    assert process.stdout is not None
    found: dict[str, int] = {}
    while len(found) < count:
        said = re.fullmatch(r"(\S+) sleeps as (\d+)\n", process.stdout.readline())
        if said is not None:
            found[said[1]] = int(said[2])
    return found


def test_the_host_is_up_when_all_its_brokers_are() -> None:
    with host("broker-1=sleeps", "broker-2=sleeps", "broker-3=sleeps") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines.count("all are up\n") == 1
        process.terminate()
    with host("broker-1=sleeps", "broker-2=2") as process:
        asleep(process, 1)
        process.terminate()
        assert process.stdout is not None
        assert "all are up\n" not in process.stdout.read()


def test_all_stop_together_and_the_host_ends_well() -> None:
    with host("broker-1=sleeps", "broker-2=sleeps") as process:
        pids = asleep(process, 2)
        sessions = {os.getsid(pid) for pid in pids.values()}
        assert sessions == set(pids.values()), "Ctrl-C reaches the host alone"
        process.terminate()
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        ends = [line for line in said.splitlines() if line != "all are up"]
        assert sorted(ends) == ["broker-1 has stopped", "broker-2 has stopped"]
        assert alive(list(pids.values())) == []


def test_a_killed_one_starts_again_alone() -> None:
    with host("broker-1=sleeps", "broker-2=sleeps") as process:
        before = asleep(process, 2)
        os.kill(before["broker-1"], signal.SIGKILL)
        after = asleep(process, 1)
        assert after["broker-1"] != before["broker-1"]
        assert alive([before["broker-2"]])
        process.terminate()
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert "broker-2 has stopped" in said


def test_a_host_that_is_killed_leaves_nobody_behind() -> None:
    with host("broker-1=sleeps", "broker-2=sleeps") as process:
        pids = list(asleep(process, 2).values())
        process.kill()
        wait_until(lambda: not alive(pids), "the brokers to end", timeout_s=ALONE_S)


def test_a_wrong_configuration_is_not_tried_again() -> None:
    with host("broker-1=2", "broker-2=0") as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 2
        assert sorted(said.splitlines()) == [
            "broker-1 ended with exit code 2",
            "broker-2 has stopped",
        ]


def test_a_host_stops_while_a_broker_waits_to_start_again() -> None:
    with host("broker-1=1", "broker-2=sleeps") as process:
        assert process.stdout is not None
        first = {process.stdout.readline().split()[1] for _ in range(2)}
        assert first == {"ended", "sleeps"}
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, "the failure was said, and stopping is what was asked for"
