"""The program of a server that forks ``quorate`` commands for tests.

It loads the code of all commands once and then answers requests on a socket, one at a time:

    {"words": [word, …], "folder": path, "environment": {name: value}} and four open files
        -> {"pid": pid}
    {"wait": pid} -> {"exit_code": code}

The first three files become standard input, output and error of the forked process. It holds the
last one until it ends, so that the other end shows when it has. The server ends when the socket is
closed. Like the fork servers of clusters (docs/decisions/111) it has one thread when it forks.
"""

import importlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quorate.cli.main import COMMANDS
from quorate.cli.main import main as run_command
from quorate.cluster.fork_server.serving import Answer, Words, fork, serve

IMPORTED_LATER: Final = (
    "quorate.broker.log.recovery.examination",
    "quorate.client.admin",
    "quorate.cluster.state_file",
)
"""What commands import when they run. It starts no threads."""
FILES: Final = 4


def main(descriptor: int) -> None:
    """Load the commands, and fork them until the socket is closed."""
    for place in (*(place for place, _ in COMMANDS.values()), *IMPORTED_LATER):
        importlib.import_module(place.partition(":")[0])
    words = serve(socket.socket(fileno=descriptor), _carry_out, files_max=FILES)
    if words is not None:
        run_command(words)


def _carry_out(request: Mapping[str, Any], files: Sequence[int]) -> Answer | Words:
    if "wait" in request:
        _, status = os.waitpid(request["wait"], 0)
        return {"exit_code": os.waitstatus_to_exitcode(status)}
    pid = fork()
    if pid == 0:
        return _become_command(request, files)
    for file in files:
        os.close(file)
    return {"pid": pid}


def _become_command(request: Mapping[str, Any], files: Sequence[int]) -> Words:
    """Give the forked process the files, folder and environment of the command."""
    for standard, file in enumerate(files[:3]):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    words: Words = tuple(request["words"])
    sys.argv = ["quorate", *words]
    return words


if __name__ == "__main__":
    main(int(sys.argv[1]))
