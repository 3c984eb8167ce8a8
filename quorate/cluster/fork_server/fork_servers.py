"""The fork servers of this process: started with the first node or before, ended with the process.

A server that has ended, or whose answer was not waited for (Ctrl-C), is replaced at the next start.
The nodes that it forked go on. Only their exit codes are lost.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import IO, TYPE_CHECKING, Any, Final

from quorate.cluster.fork_server.command_line import ROOM, can_be_written
from quorate.cluster.fork_server.forked_process import ForkedProcess
from quorate.cluster.processes import ChildProcess, command_line, open_log, spawn

if TYPE_CHECKING:
    # ``quorate up`` has the servers load their code while it loads its own, of which this is most.
    from quorate.cluster.layout import Node, NodeKind

KINDS: Final[tuple["NodeKind", ...]] = ("quorum", "broker")
_MODULE: Final = "quorate.cli.cluster.fork_server_program"
_MESSAGE_BYTES: Final = 64 << 10
LOST_EXIT_CODE: Final = 255
"""The exit code of a node that ended without its fork server, which alone knows the code."""
_NOT_COMPARED: Final = frozenset({"PYTEST_CURRENT_TEST"})
"""Variables that pytest changes from test to test, and that no node reads."""


class ForkServer:
    """A running fork server for one kind of node."""

    def __init__(self, kind: "NodeKind", *, http: bool = False) -> None:
        """With ``http``, it also loads what brokers with HTTP listeners load after the rest."""
        self.environment = _environment()
        self.has_forked = False
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", _MODULE, kind, str(theirs.fileno())),
                    *(str(int(http)), ROOM),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def can_answer(self) -> bool:
        """Return whether the server runs, and its next answer is that to the next request."""
        return self._requests.fileno() >= 0 and self._process.poll() is None

    def came_too_early(self) -> bool:
        """Return whether this process has changed its environment since the server was started, and
        no node needed it before."""
        return not self.has_forked and self.environment != _environment()

    def fork(self, node: "Node", *, attached: bool) -> ForkedProcess:
        """Fork a process for this node.

        Its standard input is a pipe from this process if it is attached, and empty otherwise.
        """
        self.has_forked = True
        words = command_line(node, sys.executable, attached=attached)
        standard_input, pipe = _standard_input(attached=attached)
        with ExitStack() as cleanup, os.fdopen(standard_input), open_log(node) as log_file:
            if pipe is not None:
                cleanup.callback(pipe.close)
            answer = self._ask(
                {"fork": words, "folder": str(node.folder)}, [standard_input, log_file.fileno()]
            )
            cleanup.pop_all()
        return ForkedProcess(int(answer["pid"]), pipe, self._poll)

    def close(self) -> None:
        """End the server, also if it still loads code. The nodes that it forked do not end with
        it."""
        with self._lock:
            self._hang_up()
        self._process.terminate()
        self._process.wait()

    def _poll(self, pid: int) -> int | None:
        try:
            code = self._ask({"poll": pid})["exit_code"]
        except OSError:
            return LOST_EXIT_CODE
        return None if code is None else int(code)

    def _ask(self, request: Mapping[str, Any], files: list[int] | None = None) -> Mapping[str, Any]:
        """Return the answer to a request.

        Raises:
            ConnectionError: the server has ended.
        """
        with self._lock:
            try:
                socket.send_fds(self._requests, [json.dumps(request).encode()], files or [])
                answer = self._requests.recv(_MESSAGE_BYTES)
            except BaseException:
                # The next request would get the answer to this one.
                self._hang_up()
                raise
        if not answer:
            raise ConnectionError("the fork server has ended")
        read: Mapping[str, Any] = json.loads(answer)
        return read

    def _hang_up(self) -> None:
        """End the connection, of which a process that this one forked may hold a copy."""
        with suppress(OSError):
            self._requests.shutdown(socket.SHUT_RDWR)
        self._requests.close()


class ForkServers:
    """A fork server for each kind of node, from the first node that is forked."""

    def __init__(self) -> None:
        self._http = False
        self._lock = threading.Lock()
        self._servers: dict[NodeKind, ForkServer] = {}

    def load(self, *, http: bool = False) -> None:
        """Have the servers load their code now, while this process does something else.

        With ``http``, that of the HTTP listeners of brokers as well.
        """
        self._http = http
        if can_be_written():
            self._server(KINDS[0])

    def spawn(self, node: "Node", python: str, *, attached: bool) -> ChildProcess:
        """Start the node's process: fork it, or start it as anything else is started.

        A node is forked only if it would be started with the same Python and the environment that
        the fork server was started with.
        """
        if python == sys.executable and can_be_written():
            server = self._server(node.kind)
            if server.environment == _environment():
                return server.fork(node, attached=attached)
        return spawn(node, python, attached=attached)

    def close(self) -> None:
        """End the servers; the next node starts new ones."""
        with self._lock:
            while self._servers:
                self._servers.popitem()[1].close()

    def _server(self, wanted: "NodeKind") -> ForkServer:
        """Return the server for nodes of this kind; start the servers that do not run."""
        with self._lock:
            # Both at once: most clusters have both kinds, and loading takes most of a second.
            for kind in KINDS:
                server = self._servers.get(kind)
                if server is None or not server.can_answer() or server.came_too_early():
                    if server is not None:
                        server.close()
                    self._servers[kind] = ForkServer(kind, http=self._http)
            return self._servers[wanted]


_of_this_process = ForkServers()


def load_fork_servers(*, http: bool = False) -> None:
    """Have the fork servers of this process load their code before the first node needs them.

    With ``http``, brokers will have HTTP listeners.
    """
    _of_this_process.load(http=http)


def spawn_forked(node: "Node", python: str, *, attached: bool) -> ChildProcess:
    """Start the node's process; fork it where that is possible."""
    return _of_this_process.spawn(node, python, attached=attached)


def close_fork_servers() -> None:
    """End the fork servers of this process; the next node starts new ones."""
    _of_this_process.close()


def _begin_without_servers() -> None:
    """Leave the servers to the process from which this one was forked: answers would be mixed."""
    global _of_this_process
    _of_this_process = ForkServers()


atexit.register(close_fork_servers)
os.register_at_fork(after_in_child=_begin_without_servers)


def _standard_input(*, attached: bool) -> tuple[int, IO[bytes] | None]:
    """Return what a node reads, and the pipe that ends it when this process ends, if there is
    one."""
    if not attached:
        return os.open(os.devnull, os.O_RDONLY), None
    standard_input, pipe = os.pipe()
    return standard_input, os.fdopen(pipe, "wb", buffering=0)


def _environment() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _NOT_COMPARED}
