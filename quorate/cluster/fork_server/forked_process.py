"""A forked node as its cluster sees it: with the part of ``subprocess.Popen`` that is used."""

import os
import select
import signal
import subprocess
from collections.abc import Callable
from typing import IO

ExitCodes = Callable[[int], int | None]


class ForkedProcess:
    """A node that a fork server forked, and that ends when ``stdin`` is closed, if it has one."""

    def __init__(self, pid: int, stdin: IO[bytes] | None, exit_code: ExitCodes) -> None:
        """``exit_code`` asks the fork server, which is the node's parent, for the code of a pid."""
        self.pid = pid
        self.stdin = stdin
        self._ask = exit_code
        self._exit_code: int | None = None
        # While the server runs, nobody else gets the pid until the server is asked about it.
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self._exit_code is None and self._has_ended(timeout_s=0):
            self._remember_exit_code()
        return self._exit_code

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process ends, and return its exit code.

        Raises:
            subprocess.TimeoutExpired: it runs after ``timeout`` seconds.
        """
        if self._exit_code is None:
            if not self._has_ended(timeout_s=timeout):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self._remember_exit_code()
        assert self._exit_code is not None
        return self._exit_code

    def terminate(self) -> None:
        """Send SIGTERM, if the process runs."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, if the process runs."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._ended, number)

    def _has_ended(self, *, timeout_s: float | None) -> bool:
        # A poll object takes descriptors beyond 1,023, which select does not.
        waiting = select.poll()
        waiting.register(self._ended, select.POLLIN)
        return bool(waiting.poll(None if timeout_s is None else timeout_s * 1000))

    def _remember_exit_code(self) -> None:
        self._exit_code = self._ask(self.pid)
        if self._exit_code is not None:
            os.close(self._ended)
