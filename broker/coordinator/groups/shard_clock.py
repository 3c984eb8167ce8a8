"""The clocks of a group shard."""

from collections.abc import Callable
from typing import NamedTuple


class ShardClock(NamedTuple):
    """The clocks of a shard: ``now_ms`` is a monotonic time, which stands still while the
    coordinator may not answer, and ``wall_ms`` is ms since the epoch."""

    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
