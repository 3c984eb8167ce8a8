"""Runs ``quorate`` commands in processes that are forked from one which has loaded their code.

A command that is started anew loads its code for half a second of processor time, and the tests run
hundreds. What is forked has a standard input, output and error, a folder and an environment of its
own, as a started one has. Tests of the start itself use ``tests.support.cli.running``.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final, NamedTuple

_MODULE: Final = "tests.support.command_server"
_ANSWER_BYTES: Final = 1 << 10


class Ended(NamedTuple):
    """A command that has ended, as ``subprocess.CompletedProcess``."""

    returncode: int
    stdout: bytes
    stderr: bytes


class _Server:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def fork(self, words: Sequence[str], files: Sequence[int]) -> int:
        request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
        return int(self._ask(request, files)["pid"])

    def exit_code(self, pid: int) -> int:
        """Wait for the process to end."""
        return int(self._ask({"wait": pid})["exit_code"])

    def close(self) -> None:
        self._requests.close()
        self._process.wait()

    def _ask(self, request: Mapping[str, Any], files: Sequence[int] = ()) -> Mapping[str, Any]:
        with self._lock:
            socket.send_fds(self._requests, [json.dumps(request).encode()], files)
            answer = self._requests.recv(_ANSWER_BYTES)
        assert answer, "the server of commands has ended"
        read: Mapping[str, Any] = json.loads(answer)
        return read


class _OfThisProcess:
    """The server of this process, from its first command on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: _Server | None = None

    def server(self) -> _Server:
        with self._lock:
            if self._server is None:
                self._server = _Server()
            return self._server

    def close(self) -> None:
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None


_OF_THIS_PROCESS: Final = _OfThisProcess()


def run_forked(words: Sequence[str], stdin: bytes, timeout_s: float) -> Ended:
    """Run a command to its end.

    Raises:
        subprocess.TimeoutExpired: it took too long and was killed.
    """
    file = tempfile.TemporaryFile
    with file() as given, file() as out, file() as err:
        given.write(stdin)
        given.seek(0)
        server = _OF_THIS_PROCESS.server()
        has_ended, held = os.pipe()
        try:
            pid = server.fork(words, [given.fileno(), out.fileno(), err.fileno(), held])
        finally:
            os.close(held)
        in_time, _, _ = select.select([has_ended], [], [], timeout_s)
        os.close(has_ended)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        code = server.exit_code(pid)
        if not in_time:
            raise subprocess.TimeoutExpired(["quorate", *words], timeout_s, _read(out), _read(err))
        return Ended(code, _read(out), _read(err))


def close_command_server() -> None:
    """End the server of this process; the next command starts another one."""
    _OF_THIS_PROCESS.close()


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
