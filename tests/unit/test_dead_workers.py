"""A parallel run notices a worker that died, though a child of it lives on."""

import subprocess
import sys

A_WORKER_DIES = """
import os, subprocess, sys
from tests.support.dead_workers import dead_children, end_pipe_holders

forks_and_dies = (
    "import os, signal; child = os.fork(); os.write(1, b'.'); child or signal.pause(); os._exit(1)"
)
worker = subprocess.Popen([sys.executable, "-c", forks_and_dies], stdout=subprocess.PIPE)
assert worker.stdout.read(2) == b".."
os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
assert dead_children(os.getpid()) == {worker.pid}
assert len(end_pipe_holders()) == 1
assert worker.stdout.read() == b""
worker.wait()
assert dead_children(os.getpid()) == set()
"""

THEN_IT_IS_KILLED = """
assert end_pipe_holders() == []
worker.kill()
worker.wait()
assert len(end_pipe_holders()) == 1
"""


def test_what_holds_the_pipe_of_a_dead_worker_is_ended() -> None:
    run = subprocess.run(
        [sys.executable, "-c", A_WORKER_DIES], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr


def test_what_a_living_worker_forked_goes_on() -> None:
    lives = A_WORKER_DIES.replace("os._exit(1)", "signal.pause()").split("os.waitid")[0]
    run = subprocess.run(
        [sys.executable, "-c", lives + THEN_IT_IS_KILLED],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
