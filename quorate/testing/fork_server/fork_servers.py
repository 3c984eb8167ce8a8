"""The fork servers of this process: started with the first node, ended with the process."""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from quorate.cluster.layout import Node, NodeKind
from quorate.cluster.processes import ChildProcess, command_line, open_log, spawn
from quorate.testing.fork_server.command_line import ROOM, can_be_written
from quorate.testing.fork_server.forked_process import ForkedProcess

_MODULE: Final = "quorate.testing.fork_server.server"
_MESSAGE_BYTES: Final = 64 << 10
_NOT_COMPARED: Final = frozenset({"PYTEST_CURRENT_TEST"})
"""Variables that pytest changes from test to test, and that no node reads."""


class ForkServer:
    """A running fork server for one kind of node."""

    def __init__(self, kind: NodeKind) -> None:
        self.environment = _environment()
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, kind, str(theirs.fileno()), ROOM],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def fork(self, node: Node) -> ForkedProcess:
        """Fork a process for this node. Its standard input is a pipe from this process."""
        words = command_line(node, sys.executable, attached=True)
        standard_input, pipe = os.pipe()
        try:
            with open_log(node) as log_file:
                answer = self._ask(
                    {"fork": words, "folder": str(node.folder)},
                    [standard_input, log_file.fileno()],
                )
        except BaseException:
            os.close(pipe)
            raise
        finally:
            os.close(standard_input)
        return ForkedProcess(int(answer["pid"]), os.fdopen(pipe, "wb", buffering=0), self._poll)

    def close(self) -> None:
        """End the server. The nodes that it forked do not end with it."""
        with self._lock:
            self._requests.close()
        self._process.wait()

    def _poll(self, pid: int) -> int | None:
        code = self._ask({"poll": pid})["exit_code"]
        return None if code is None else int(code)

    def _ask(self, request: Mapping[str, Any], files: list[int] | None = None) -> Mapping[str, Any]:
        with self._lock:
            socket.send_fds(self._requests, [json.dumps(request).encode()], files or [])
            answer = self._requests.recv(_MESSAGE_BYTES)
        if not answer:
            raise RuntimeError(f"the fork server ended with exit code {self._process.wait()}")
        read: Mapping[str, Any] = json.loads(answer)
        return read


class ForkServers:
    """A fork server for each kind of node."""

    def __init__(self) -> None:
        # Both at once: most clusters have both kinds, and loading takes most of a second.
        self._servers: Mapping[NodeKind, ForkServer] = {
            "quorum": ForkServer("quorum"),
            "broker": ForkServer("broker"),
        }

    def spawn(self, node: Node, python: str, *, attached: bool) -> ChildProcess:
        """Start the node's process: fork it, or start it as anything else is started.

        A node is forked only if the forked process is what a started one would be: the same Python,
        and the environment that the fork server was started with.
        """
        server = self._servers[node.kind]
        if attached and python == sys.executable and server.environment == _environment():
            return server.fork(node)
        return spawn(node, python, attached=attached)

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()


@cache
def _fork_servers() -> ForkServers:
    servers = ForkServers()
    atexit.register(close_fork_servers)
    return servers


def spawn_forked(node: Node, python: str, *, attached: bool) -> ChildProcess:
    """Start the node's process; fork it where that is possible."""
    if not can_be_written():
        return spawn(node, python, attached=attached)
    return _fork_servers().spawn(node, python, attached=attached)


def close_fork_servers() -> None:
    """End the fork servers of this process; the next node starts new ones."""
    if _fork_servers.cache_info().currsize:
        servers = _fork_servers()
        _fork_servers.cache_clear()
        servers.close()


def _environment() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _NOT_COMPARED}
