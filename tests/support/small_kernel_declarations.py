"""The declarations of `small_kernels`: apart from them, as importing those imports numba."""

from typing import Final

from quorate.spark.kernels.kernel_declaration import KernelArgument, KernelDeclaration

_SOURCE: Final = "tests.support.small_kernels"

SUM: Final = KernelDeclaration(
    _SOURCE, "total", (KernelArgument.INT64S, KernelArgument.INT), sources=(__name__,)
)
DIVIDE: Final = KernelDeclaration(
    _SOURCE, "divide", (KernelArgument.INT, KernelArgument.INT), sources=(__name__,)
)
SHOUT: Final = KernelDeclaration(_SOURCE, "shout", (KernelArgument.INT,), sources=(__name__,))
