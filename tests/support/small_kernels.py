"""Kernels that compile in no time, for tests of how kernels are kept."""

import numpy as np
import numpy.typing as npt

from quorate.spark.kernels.kernel_compiler import kernel
from tests.support.small_kernel_declarations import DIVIDE, SHOUT, SUM


@kernel(SUM)
def total(numbers: npt.NDArray[np.int64], count: int) -> int:
    """The sum of ``count`` numbers."""
    found = 0
    for index in range(count):
        found += numbers[index]
    return found


@kernel(DIVIDE)
def divide(dividend: int, divisor: int) -> int:
    """Raises: a kernel must not, but who calls it is to hear of it."""
    if divisor == 0:
        raise ZeroDivisionError
    return dividend // divisor


@kernel(SHOUT)
def shout(number: int) -> int:
    """Print a number. This is not fit to be a kernel, because it needs Python to print."""
    print(number)  # noqa: T201
    return number
