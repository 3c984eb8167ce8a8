"""What is done in each Python worker, and how one ends."""

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from quorate.spark import python_worker
from quorate.spark.python_worker import REUSED_WORKER, prepare_worker, until_closed
from quorate.spark.worker_daemon import while_spark_is_there

WRITER = """
import os
from quorate.spark.python_worker import until_closed
for number in range(1000):
    with until_closed():
        os.write(1, bytes(100_000))
"""
"""A program that writes as Spark's serializer does: between two steps of a generator."""
THREADS_OF_THE_DAEMON = """
from importlib import import_module
from pathlib import Path
from quorate.spark.worker_daemon import BEFORE_THE_FORK
for name in BEFORE_THE_FORK:
    import_module(name)
assert "grpc" in __import__("sys").modules
for task in Path("/proc/self/task").iterdir():
    print((task / "comm").read_text().strip())
"""
FORK_WHILE_THE_DAEMON_ENDS = """
import os
import signal
from quorate.spark.worker_daemon import let_the_end_of_the_daemon_end_workers
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As Spark's daemon does.
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGHUP))
let_the_end_of_the_daemon_end_workers()
if os.fork() == 0:
    os._exit(0)
os.kill(os.getpid(), signal.SIGHUP)  # The daemon itself goes on ignoring it.
_, status = os.wait()
os._exit(os.WTERMSIG(status))
"""
"""A program whose fork gets the signal before it has run a line of its own."""
HARMLESS_THREADS = {"python", "python3", "python3.11", "python3.12", "jemalloc_bg_thd"}
"""The main thread, those of OpenBLAS, and one of Arrow's: their libraries look after forks."""


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """Let nothing be frozen, as in a new process; the run's own objects are frozen again after
    that."""
    prepare_worker.cache_clear()
    gc.unfreeze()
    yield
    gc.freeze()
    prepare_worker.cache_clear()


@pytest.fixture
def heaps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether all threads were to share a heap, for each time that it was said."""
    said: list[bool] = []
    monkeypatch.setattr(
        python_worker, "keep_freed_memory", lambda *, one_heap: said.append(one_heap)
    )
    return said


def test_a_worker_that_is_used_again_keeps_imports_out_of_garbage_collection(
    monkeypatch: pytest.MonkeyPatch, heaps: list[bool]
) -> None:
    monkeypatch.setenv(REUSED_WORKER, "1")
    prepare_worker()
    frozen = gc.get_freeze_count()
    assert frozen > 1000  # nothing was frozen before: all that this process has imported
    kept = [[] for _ in range(1000)]  # type: ignore[var-annotated]
    prepare_worker()
    assert gc.get_freeze_count() <= frozen
    assert len(kept) == 1000
    assert heaps == [True]


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch, heaps: list[bool]) -> None:
    monkeypatch.delenv(REUSED_WORKER, raising=False)
    prepare_worker()
    assert gc.get_freeze_count() == 0
    assert heaps == []
    with until_closed():
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


def test_the_signal_is_as_before_once_spark_has_taken_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(REUSED_WORKER, "1")
    with until_closed():
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


@pytest.mark.parametrize("in_a_worker", [True, False])
def test_a_worker_ends_without_a_word_when_nobody_reads_on(*, in_a_worker: bool) -> None:
    environment = {**os.environ, REUSED_WORKER: "1" if in_a_worker else ""}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    with writer, writer.stderr:
        assert writer.stdout.read(1000)
        writer.stdout.close()
        told = writer.stderr.read()
    assert (writer.returncode == -signal.SIGPIPE) is in_a_worker
    assert (b"BrokenPipeError" in told) is not in_a_worker


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted by /proc")
def test_what_the_daemon_imports_starts_no_thread_that_a_fork_would_lose() -> None:
    run = subprocess.run(
        [sys.executable, "-c", THREADS_OF_THE_DAEMON], capture_output=True, text=True, check=True
    )
    assert set(run.stdout.split()) <= HARMLESS_THREADS


@pytest.mark.parametrize(("sent", "code", "tasks"), [(b"a task", 0, [b"a task"]), (b"", 1, [])])
def test_a_worker_runs_a_task_only_if_spark_sends_one(
    sent: bytes, code: int, tasks: list[bytes]
) -> None:
    received: list[bytes] = []

    def run_task(connection: socket.socket, authenticated: bool) -> int:
        assert authenticated
        received.append(connection.recv(100))
        return 0

    spark, worker = socket.socketpair()
    with worker:
        with spark:
            spark.sendall(sent)
        assert while_spark_is_there(run_task)(worker, True) == code
    assert received == tasks


def test_a_worker_whose_rows_nobody_takes_ends_as_if_it_were_done() -> None:
    def run_task(connection: socket.socket, authenticated: bool) -> int:
        connection.recv(100)
        raise BrokenPipeError(authenticated)

    spark, worker = socket.socketpair()
    with spark, worker:
        spark.sendall(b"a task")
        assert while_spark_is_there(run_task)(worker, True) == 1


def test_a_worker_that_was_forked_a_moment_before_ends_with_its_daemon() -> None:
    run = subprocess.run([sys.executable, "-c", FORK_WHILE_THE_DAEMON_ENDS], check=False)
    assert run.returncode == signal.SIGHUP
