"""What a long run tells of itself, each line with the time since its beginning."""

import sys
import time
from collections.abc import Callable


def timed_lines() -> Callable[[str], None]:
    """Return a function that prints a line at once, behind the seconds since this call."""
    began = time.monotonic()

    def say(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {line}\n")
        sys.stdout.flush()

    return say
