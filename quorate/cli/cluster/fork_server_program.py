"""The program of a fork server: ``python -m MODULE KIND SOCKET HTTP ROOM``.

It loads the code of a broker or of a voter, with HTTP=1 also that of a broker's HTTP listeners, and
then answers requests on the socket, one at a time:

    {"fork": [word, …], "folder": path} and two open files -> {"pid": pid}
    {"poll": pid} -> {"exit_code": code, or null while the process runs}

The two files become standard input and standard output of the forked process. The server ends when
the other end of the socket is closed. The nodes that it forked watch their own standard input.

A fork is safe here because this process has one thread: gRPC's core, uvloop and the log start
theirs in the node, after the fork.
"""

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from quorate.cli.cluster.node_command import load_broker, load_voter
from quorate.cli.main import main as run_command
from quorate.cluster.fork_server.command_line import write_command_line
from quorate.cluster.fork_server.serving import Answer, Words, fork, serve

FILES: Final = 2


LOADERS: Final[Mapping[str, Callable[[], object]]] = {"broker": load_broker, "quorum": load_voter}


def main(kind: str, descriptor: int, *, http: bool) -> None:
    """Load the code of nodes of this kind, and fork nodes until the socket is closed."""
    LOADERS[kind]()
    if http and kind == "broker":
        _load_http_listeners()
    words = serve(socket.socket(fileno=descriptor), _carry_out, files_max=FILES)
    if words is not None:
        run_command(words)


def _load_http_listeners() -> None:
    from quorate.broker.process import load_http_listeners

    load_http_listeners()


def _carry_out(request: Mapping[str, Any], files: Sequence[int]) -> Answer | Words:
    if "poll" in request:
        return {"exit_code": _exit_code(request["poll"])}
    pid = _fork(request["fork"], request["folder"], files)
    return {"pid": pid} if pid else _command(request["fork"])


def _fork(words: Sequence[str], folder: str, files: Sequence[int]) -> int:
    """Fork a process and close ``files`` in this one. Return the pid, or 0 in the forked process.

    It returns when the forked process shows its own command line: who asked may look for it at
    once.
    """
    done_here, done_there = os.pipe()
    pid = fork()
    if pid == 0:
        _become_node(words, folder, files)
    for file in (*files, done_there):
        os.close(file)
    # In the server this waits until the forked process has closed its end.
    if pid:
        os.read(done_here, 1)
    os.close(done_here)
    return pid


def _become_node(words: Sequence[str], folder: str, files: Sequence[int]) -> None:
    """Give the forked process what a started one has: a session, a folder, files, a command
    line."""
    os.setsid()
    standard_input, output = files
    os.dup2(standard_input, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    write_command_line(words)


def _command(words: Sequence[str]) -> Words:
    """Return the words of a command line without the interpreter, its options and its module."""
    sys.argv = list(words[words.index("-m") + 1 :])
    return tuple(sys.argv[1:])


def _exit_code(pid: int) -> int | None:
    """Return the exit code of a forked process as ``subprocess`` has it, or None if it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), http=sys.argv[3] == "1")
