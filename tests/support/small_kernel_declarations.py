"""The declarations of `small_kernels`: apart from them, as importing those imports numba."""

from typing import Final

from quorate.spark.kernels.declaration import Declaration, Kind

_SOURCE: Final = "tests.support.small_kernels"

SUM: Final = Declaration(_SOURCE, "total", (Kind.INT64S, Kind.INT), sources=(__name__,))
DIVIDE: Final = Declaration(_SOURCE, "divide", (Kind.INT, Kind.INT), sources=(__name__,))
SHOUT: Final = Declaration(_SOURCE, "shout", (Kind.INT,), sources=(__name__,))
