"""The ISR of one partition at its leader: what is committed, and what may be.

Invariant: the true ISR in the quorum is, at any moment, the committed ISR known here or one of the
proposals in ``unsettled`` and ``proposed``. The high watermark therefore counts their union, the
*maximal ISR*: a member that joined without the leader having heard of it is never left behind.
"""

from dataclasses import dataclass, replace

from metadata_log.types import BrokerId


@dataclass(frozen=True, slots=True)
class IsrState:
    """``committed`` at ``version``; one proposal in flight at most."""

    committed: tuple[BrokerId, ...]
    version: int
    proposed: frozenset[BrokerId] = frozenset()
    unsettled: frozenset[BrokerId] = frozenset()
    in_flight: int | None = None

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Committed ISR and every change whose outcome is not known."""
        return self.proposed.union(self.unsettled, self.committed)

    @property
    def must_settle(self) -> bool:
        """An earlier change may or may not have been applied: only a newer version tells."""
        return bool(self.unsettled) and self.in_flight is None

    @classmethod
    def resumed(
        cls, committed: tuple[BrokerId, ...], version: int, replicas: tuple[BrokerId, ...]
    ) -> "IsrState":
        """Of an epoch that an earlier incarnation led: a change it proposed against this version
        may be on its way yet, and whoever has a replica may be in it.
        """
        everybody = frozenset(replicas)
        return cls(committed, version, unsettled=everybody.difference(committed) and everybody)

    def propose(self, attempt: int, members: tuple[BrokerId, ...]) -> "IsrState":
        assert self.in_flight is None, "one ISR change in flight per partition"
        return replace(self, proposed=frozenset(members), in_flight=attempt)

    def learn(self, version: int, committed: tuple[BrokerId, ...]) -> "IsrState":
        """The record at a newer version: every proposal against an older one is settled by it.

        A compare-and-set against a version that has passed can never succeed any more.
        """
        return self if version <= self.version else IsrState(committed, version)

    def refused(self) -> "IsrState":
        """The proposal was certainly not applied."""
        return replace(self, proposed=frozenset(), in_flight=None)

    def unknown(self) -> "IsrState":
        """The proposal may have been applied, or may yet be."""
        return replace(
            self,
            proposed=frozenset(),
            unsettled=self.unsettled | self.proposed,
            in_flight=None,
        )
