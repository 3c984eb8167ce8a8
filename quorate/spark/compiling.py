"""How kernels are compiled: ahead of the first call, without the GIL, cached on disk."""
# ruff: noqa: ANN401 - numba and llvmlite have no types for what compilers pass around

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

_logger = logging.getLogger(__name__)


def compiled(signature: Any) -> Callable[[F], F]:
    """``numba.njit`` without the GIL, cached on disk where there is a place for the cache."""

    def decorate(function: F) -> F:
        try:
            kernel: F = numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError as error:  # numba found no writable folder
            _logger.warning("decoder is compiled in every process, set NUMBA_CACHE_DIR: %s", error)
            kernel = numba.njit(signature, nogil=True)(function)
        return kernel

    return decorate


def inlined(function: F) -> F:
    """Made part of the kernels that call it: arrays that are passed cost reference counts."""
    inlinable: Any = numba.njit(inline="always")(function)
    return cast(F, inlinable)


def _memcpy(
    typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any
) -> tuple[Any, Callable[..., Any]]:
    """LLVM's memcpy between two byte arrays; the caller has checked both ends."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target_type, source_type = signature.args[0], signature.args[2]
        to = context.make_array(target_type)(context, builder, arguments[0]).data
        from_ = context.make_array(source_type)(context, builder, arguments[2]).data
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder,
            builder.gep(to, [arguments[1]]),
            builder.gep(from_, [arguments[3]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


copy_bytes: Callable[..., None] = intrinsic(_memcpy)
"""``copy_bytes(target, target_at, source, source_at, size)``, for compiled code only."""
