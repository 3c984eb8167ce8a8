"""The command line of this process, as ``ps`` and ``/proc/PID/cmdline`` show it.

A node is recognised by its command line (``quorate.cluster.processes``). A forked node would show
that of the fork server, so it writes its own over it. The kernel keeps the command line in the
memory of the process, between two addresses that ``/proc/self/stat`` tells (proc(5)).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

CAPACITY_BYTES: Final = 8192
ROOM: Final = "." * CAPACITY_BYTES
"""An argument of the fork server that means nothing: it makes room for longer command lines."""

_MEMORY: Final = Path("/proc/self/mem")
_FIELDS_BEFORE_NAME_ENDS: Final = 3
_ARG_START: Final = 48 - _FIELDS_BEFORE_NAME_ENDS
_ARG_END: Final = 49 - _FIELDS_BEFORE_NAME_ENDS
"""Positions in ``/proc/self/stat``, counted after the name, which may hold spaces."""


def can_be_written() -> bool:
    """Return whether this system lets a process write its command line: Linux does, but some
    sandboxes do not tell the addresses."""
    return _MEMORY.exists() and _addresses()[0] > 0


def write_command_line(words: Sequence[str]) -> None:
    """Show ``words`` as the command line of this process.

    Raises:
        ValueError: the words are longer than the command line that the process started with.
    """
    shown = b"".join(word.encode() + b"\0" for word in words)
    start, end = _addresses()
    if len(shown) > end - start:
        raise ValueError(f"a command line of {len(shown)} bytes: there is room for {end - start}")
    with _MEMORY.open("r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(shown.ljust(end - start, b"\0"))


def _addresses() -> tuple[int, int]:
    """Return the addresses where the command line begins and ends."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[_ARG_START]), int(fields[_ARG_END])
