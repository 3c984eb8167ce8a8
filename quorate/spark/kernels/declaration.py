"""What a kernel is called and takes: told once, to the compiler and to who calls its machine code.

A kernel is a function of C: pointers and whole numbers in, a whole number out. Every size that it
needs is an argument, and it holds nothing of Python's, so its machine code runs without the GIL and
can be kept in a file. Nothing here imports numba: a worker that finds the file never does.
"""

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """Of an argument: a pointer (an address, 0 where the kernel does not look) or a number."""

    BYTES = "uint8*"
    INT32S = "int32*"
    INT64S = "int64*"
    INT = "int64"


@dataclass(frozen=True, slots=True)
class Declaration:
    """A kernel: the function ``name`` of ``module``, which is decorated with this declaration."""

    module: str
    name: str
    arguments: tuple[Kind, ...]
    sources: tuple[str, ...] = ()
    """Further modules whose text is compiled in: with any change the machine code is made anew."""
