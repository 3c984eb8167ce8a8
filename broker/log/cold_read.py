"""A read that would have to wait for the disk, which the event loop must not."""

from collections.abc import Awaitable, Callable


class ColdRead(Exception):
    """What was asked for is on the disk alone. ``await load()``, then read again.

    ``size``: bytes of records that were asked for.
    """

    def __init__(self, size: int, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__(f"{size} bytes are not in the page cache")
        self.size = size
        self.load = load
