"""The declaration of a kernel: its name and its arguments, for the compiler and for the callers.

A kernel is a C function: its arguments are pointers and whole numbers, its result is a whole
number. Every size that it needs is an argument, and it holds no Python objects, so its machine code
runs without the GIL and can be stored in a file. This module does not import numba, and a worker
that finds the file never does.
"""

import enum
from dataclasses import dataclass


class KernelArgument(enum.Enum):
    """The type of an argument: a number, or a pointer (an address; 0 if the kernel ignores it)."""

    BYTES = "uint8*"
    INT32S = "int32*"
    INT64S = "int64*"
    FLOAT32S = "float32*"
    FLOAT64S = "float64*"
    INT = "int64"


@dataclass(frozen=True, slots=True)
class KernelDeclaration:
    """The declaration of the function ``name`` in ``module``, which is decorated with it."""

    module: str
    name: str
    arguments: tuple[KernelArgument, ...]
    sources: tuple[str, ...] = ()
    """Further modules whose text is compiled in. If one changes, the kernel is compiled again."""
