"""The processes of a host's brokers: forked, started again after a failure, and stopped together.

The process that forks them does nothing else and has one thread: a fork copies one thread only, and
a lock that another one holds would stay locked in the copy for ever. gRPC's core, uvloop and the
log start their threads in the brokers, after the fork. It waits for signals one at a time.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from quorate.broker.host.restart_delays import RestartDelays
from quorate.common.service_manager import notify_stopping

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
"""The exit code of a broker whose configuration is wrong: to start it again cannot help."""

_STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_UP: Final = signal.SIGRTMIN
"""A broker sends this when it serves. Signals of this kind are queued: none is lost."""
_AWAITED: Final = _STOP | {signal.SIGCHLD, _UP}
_NAME_BYTES: Final = 15
_STANDARD_INPUT: Final = 0

Say = Callable[[str], None]


class BrokerProcesses:
    """The brokers of a host, by name. Make it in a process with one thread, and ``run`` it once."""

    def __init__(
        self,
        names: Sequence[str],
        now_ms: Callable[[], int],
        say: Say,
        all_are_up: Callable[[], None],
    ) -> None:
        """``now_ms`` is the monotonic clock. ``say`` tells a person what became of a broker.
        ``all_are_up`` is called once, when every broker has come up since the start."""
        self._now_ms = now_ms
        self._say = say
        self._all_are_up = all_are_up
        self._not_up_yet = set(names)
        self._pid = os.getpid()
        self._delays = {name: RestartDelays() for name in names}
        self._due_ms: dict[str, int] = dict.fromkeys(names, 0)
        """When each broker that does not run is to start."""
        self._running: dict[int, str] = {}
        self._started_ms: dict[str, int] = {}
        self._stopping = False
        self._exit_code = EXIT_OK
        # Nothing is ever written to it: it ends when this process ends, however it ends.
        self._parent_lives, self._parent_holds = os.pipe()

    def run(self) -> str | int:
        """Run the brokers until all have ended.

        Returns:
            In each forked process, the name of its broker, which it is to run. In the process that
            forked them, the exit code once all have ended: that of the first one that failed.
        """
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        while self._running or self._due_ms:
            for name in self._take_due():
                pid = self._fork(name)
                if pid == 0:
                    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
                    return name
            self._wait_for_signal()
            self._reap()
        return self._exit_code

    def _take_due(self) -> Sequence[str]:
        now_ms = self._now_ms()
        due = [name for name, due_ms in self._due_ms.items() if due_ms <= now_ms]
        for name in due:
            del self._due_ms[name]
        return due

    def _fork(self, name: str) -> int:
        assert _threads() == 1, "only a process with one thread may fork"
        pid = os.fork()
        if pid == 0:
            self._become_broker(name)
        else:
            self._running[pid] = name
            self._started_ms[name] = self._now_ms()
        return pid

    def _become_broker(self, name: str) -> None:
        """Give the forked process a session of its own, so that Ctrl-C reaches the other one only,
        a name that ``ps`` and the journal show, and an input that ends with the other process."""
        os.setsid()
        os.dup2(self._parent_lives, _STANDARD_INPUT)
        os.close(self._parent_lives)
        os.close(self._parent_holds)
        Path("/proc/self/comm").write_bytes(name.encode()[:_NAME_BYTES])

    def _wait_for_signal(self) -> None:
        """Wait until a broker ends, is due to start, or all are to stop."""
        timeout_s = 3600.0
        if self._due_ms:
            timeout_s = max(0, min(self._due_ms.values()) - self._now_ms()) / 1000
        received = signal.sigtimedwait(_AWAITED, timeout_s)
        if received is None:
            return
        if received.si_signo == _UP:
            self._is_up(received.si_pid)
        elif received.si_signo in _STOP and not self._stopping:
            notify_stopping()
            self._stop()

    def _is_up(self, pid: int) -> None:
        if self._not_up_yet:
            self._not_up_yet.discard(self._running.get(pid, ""))
            if not self._not_up_yet:
                self._all_are_up()

    def tell_parent_that_up(self) -> None:
        """Called in a forked process: tell the one that forked it that its broker serves."""
        if os.getppid() == self._pid:
            os.kill(self._pid, _UP)

    def _stop(self) -> None:
        """Stop all brokers at once. No two of them hold replicas of one partition, so each
        partition loses one member of its ISR, as if one broker stopped."""
        self._stopping = True
        self._due_ms.clear()
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._ended(self._running.pop(pid), os.waitstatus_to_exitcode(status))

    def _ended(self, name: str, code: int) -> None:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        # The signal may come before the broker has a handler for it.
        if code == EXIT_OK or (self._stopping and code == -signal.SIGTERM):
            self._say(f"{name} has stopped")
        elif code == EXIT_CONFIG or self._stopping:
            self._exit_code = self._exit_code or max(code, EXIT_FAILED)
            self._say(f"{name} {how}")
        else:
            now_ms = self._now_ms()
            delay_ms = self._delays[name].after_failure(now_ms - self._started_ms[name])
            self._due_ms[name] = now_ms + delay_ms
            self._say(f"{name} {how}: it starts again in {delay_ms} ms")


def _threads() -> int:
    """Return the number of threads of this process, also those that Python did not start."""
    try:
        return len(os.listdir("/proc/self/task"))
    except FileNotFoundError:
        return threading.active_count()
