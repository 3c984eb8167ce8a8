"""The intervals between keep-alives, as a client of the quorum and the leader both count them."""

from typing import Final

LONGEST_INTERVAL: Final = 1 / 3
"""The part of its timeout after which a session sends a keep-alive in any case. Two that come late,
or a search for the next leader, then still fit into the timeout.
"""


def own_interval_ms(timeout_ms: int) -> float:
    """Return the interval of a client that was told none."""
    return min(timeout_ms / 6, 1_000)


def interval_to_keep_ms(timeout_ms: int, named_ms: int) -> float:
    """Return the interval of a client that the leader told ``named_ms``; 0 tells nothing."""
    return max(own_interval_ms(timeout_ms), min(named_ms, timeout_ms * LONGEST_INTERVAL))
