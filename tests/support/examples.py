"""How many examples hypothesis tries per test: some in each run, many more in the soak."""

import os
from typing import Final

_FACTOR: Final = int(os.environ.get("QUORATE_EXAMPLES", "1"))

DEFAULT: Final = 30
"""The examples of a test that does not say how many it needs."""


def examples(count: int) -> int:
    """Return ``count``, or as many times that as QUORATE_EXAMPLES says."""
    return count * _FACTOR
