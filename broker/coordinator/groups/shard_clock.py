"""The clocks of a group shard."""

from collections.abc import Callable
from typing import NamedTuple


class ShardClock(NamedTuple):
    """The clocks of a shard: ``now_ms`` is the event loop's monotonic time, ``wall_ms`` is ms since
    the epoch."""

    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
