"""Compiles kernels: numba compiles a function, and its result is turned into an object file.

This is the only module of the package that imports numba. The import takes 1 s and 75 MB, which a
worker avoids if its kernels are compiled already.
"""
# ruff: noqa: ANN401 - numba and llvmlite have no types for what compilers pass around

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import llvmlite.binding as llvm
import numba
import numpy as np
import numpy.typing as npt
from numba.core import cgutils, types
from numba.extending import intrinsic

from quorate.spark.kernels.kernel_declaration import KernelArgument, KernelDeclaration
from quorate.spark.kernels.machine_code import Machine

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: Final = {
    KernelArgument.BYTES: types.CPointer(types.uint8),  # type: ignore[no-untyped-call]
    KernelArgument.INT32S: types.CPointer(types.int32),  # type: ignore[no-untyped-call]
    KernelArgument.INT64S: types.CPointer(types.int64),  # type: ignore[no-untyped-call]
    KernelArgument.FLOAT32S: types.CPointer(types.float32),  # type: ignore[no-untyped-call]
    KernelArgument.FLOAT64S: types.CPointer(types.float64),  # type: ignore[no-untyped-call]
    KernelArgument.INT: types.int64,
}
_LIBRARY_FUNCTIONS: Final = frozenset({"memcpy", "memmove", "memset"})
"""The only functions that a kernel may call: every process has them from the C library."""

BYTES: Final = _TYPES[KernelArgument.BYTES]
INT32S: Final = _TYPES[KernelArgument.INT32S]
INT64S: Final = _TYPES[KernelArgument.INT64S]
INT: Final = _TYPES[KernelArgument.INT]

UInt8s = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
Integer = int | np.int64
"""The types in the signatures of kernels, for readers and mypy. The arguments are bare pointers."""


class NotAKernel(TypeError):
    """The function needs the Python runtime while it runs."""


def kernel(declaration: KernelDeclaration) -> Callable[[F], F]:
    """Compile a function as its declaration says. Only its machine code can be called."""
    return kernel_part(INT(*(_TYPES[kind] for kind in declaration.arguments)))


def kernel_part(signature: Any) -> Callable[[F], F]:
    """Compile a function that kernels call."""

    njit: Any = numba.njit  # The stubs do not know the options that leave Python out.

    def decorate(function: F) -> F:
        compiled: F = njit(
            signature, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
        )(function)
        return compiled

    return decorate


def make_object(declaration: KernelDeclaration, machine: Machine) -> tuple[str, bytes]:
    """Return the symbol of a kernel, and its object file.

    The symbol is the C function ``int32 symbol(int64 *result, void **exception, …arguments)``.

    Raises:
        NotAKernel: names the called functions that a process without numba does not have.
    """
    function: Any = getattr(importlib.import_module(declaration.module), declaration.name)
    (signature,) = function.signatures
    symbol: str = function.overloads[signature].fndesc.llvm_func_name
    module = llvm.parse_assembly(function.inspect_llvm(signature))
    called = {f.name for f in module.functions if f.is_declaration}
    foreign = {name for name in called - _LIBRARY_FUNCTIONS if not name.startswith("llvm.")}
    if foreign:
        raise NotAKernel(f"{declaration.name} calls {', '.join(sorted(foreign))}")
    return symbol, machine.target().emit_object(module)


def _copy_bytes(
    typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any
) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder,
            builder.gep(arguments[0], [arguments[1]]),
            builder.gep(arguments[2], [arguments[3]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


copy_bytes: Callable[..., None] = intrinsic(_copy_bytes)
"""Copies bytes by memcpy: ``copy_bytes(target, target_at, source, source_at, size)``.

The caller has checked both ends."""
