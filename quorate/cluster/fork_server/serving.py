"""The work of every fork server: it loads code once, then forks processes as a socket asks for."""

import gc
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

MESSAGE_BYTES: Final = 128 << 10

Answer = Mapping[str, int | None]
Words = tuple[str, ...]
"""The words of the command that a forked process is to run."""

CarryOut = Callable[[Mapping[str, Any], Sequence[int]], Answer | Words]
"""Carries out one request with its open files. It returns the answer, or in a process that it has
forked the words of its command."""


def serve(requests: socket.socket, carry_out: CarryOut, *, files_max: int) -> Words | None:
    """Answer requests one at a time. Return None when the socket is closed; in a forked process,
    return the words of its command.

    What was loaded so far is shared with the forked processes: a collection in one of them would
    write to every object, and so copy all of this memory.
    """
    gc.collect()
    gc.freeze()
    while True:
        message, files, _flags, _address = socket.recv_fds(requests, MESSAGE_BYTES, files_max)
        if not message:
            return None
        done = carry_out(json.loads(message), files)
        if isinstance(done, tuple):
            requests.close()
            return done
        try:
            requests.send(json.dumps(done).encode())
        except BrokenPipeError:
            return None


def fork() -> int:
    """Fork this process. Return the pid, or 0 in the forked process.

    Only a process with one thread may fork: a lock that another one holds would stay locked.
    """
    assert len(os.listdir("/proc/self/task")) == 1, "only a process with one thread may fork"
    return os.fork()
