"""One committed offset."""

from typing import NamedTuple


class CommittedOffset(NamedTuple):
    """``committed_ms``: wall clock. ``leader_epoch`` -1: the client did not say."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = 0
