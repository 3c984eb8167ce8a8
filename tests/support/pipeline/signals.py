"""SIGTERM as the end of a loop, between two of its steps."""

import signal
from collections.abc import Iterator


def until_told_to_stop() -> Iterator[None]:
    """Endless, until SIGTERM; what is under way then is finished first."""
    told = False

    def stop(*_: object) -> None:
        nonlocal told
        told = True

    signal.signal(signal.SIGTERM, stop)
    while not told:
        yield
