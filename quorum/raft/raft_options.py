"""The options of one voter's Raft."""

import msgspec


class RaftOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options. Times are in seconds, as the library has them."""

    election_timeout_min_s: float = 0.3
    election_timeout_max_s: float = 0.6
    commit_push_s: float = 0.0015
    """Followers learn of a new commit index this long after it, if nothing is sent before."""

    apply_pause_s: float = 0.005
    """A busy follower applies again after this pause, unless much has come: one long run costs less
    than many short ones, and no client waits for it.
    """

    snapshot_max_entries: int = 50_000
    snapshot_max_bytes: int = 20 << 20
    retained_entries: int = 20_000
    retained_bytes: int = 16 << 20

    @property
    def heartbeat_s(self) -> float:
        """Several fit into every election timeout. The library needs less than a third of it."""
        return self.election_timeout_min_s / 6

    @property
    def leader_fallback_s(self) -> float:
        """A leader that no majority answered for this long steps down before another rises."""
        return self.election_timeout_min_s * 5 / 6
