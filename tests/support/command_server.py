"""The program of a server that forks ``quorate`` commands for tests.

It loads the code of all commands once and then answers requests on a socket, one at a time:

    {"words": [word, …], "folder": path, "environment": {name: value}} and four open files
        -> {"pid": pid}
    {"wait": pid} -> {"exit_code": code}

The first three files become standard input, output and error of the forked process. It holds the
last one until it ends, so that the other end shows when it has. The server ends when the socket is
closed. Like the fork servers of clusters (docs/decisions/111) it has one thread when it forks.
"""

import gc
import importlib
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quorate.cli.main import COMMANDS
from quorate.cli.main import main as run_command

IMPORTED_LATER: Final = (
    "quorate.broker.log.recovery.examination",
    "quorate.client.admin",
    "quorate.cluster.state_file",
)
"""What commands import when they run. It starts no threads."""
MESSAGE_BYTES: Final = 128 << 10
FILES: Final = 4


def main(descriptor: int) -> None:
    """Load the commands, and fork them until the socket is closed."""
    for place in (*(place for place, _ in COMMANDS.values()), *IMPORTED_LATER):
        importlib.import_module(place.partition(":")[0])
    gc.collect()
    gc.freeze()
    words = _serve(socket.socket(fileno=descriptor))
    if words is not None:
        run_command(words)


def _serve(requests: socket.socket) -> Sequence[str] | None:
    """Answer requests. Return None when the socket is closed; in a forked process, return the words
    of its command."""
    while True:
        message, files, _flags, _address = socket.recv_fds(requests, MESSAGE_BYTES, FILES)
        if not message:
            return None
        request = json.loads(message)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"exit_code": os.waitstatus_to_exitcode(status)}
        else:
            assert len(os.listdir("/proc/self/task")) == 1, "only one thread may fork"
            pid = os.fork()
            if pid == 0:
                requests.close()
                return _become_command(request, files)
            for file in files:
                os.close(file)
            answer = {"pid": pid}
        requests.send(json.dumps(answer).encode())


def _become_command(request: Mapping[str, Any], files: Sequence[int]) -> Sequence[str]:
    """Give the forked process the files, folder and environment of the command."""
    for standard, file in enumerate(files[:3]):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    words: Sequence[str] = request["words"]
    sys.argv = ["quorate", *words]
    return words


if __name__ == "__main__":
    main(int(sys.argv[1]))
