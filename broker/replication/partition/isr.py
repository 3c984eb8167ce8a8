"""The ISR of one partition as its leader knows it: what is committed, and what may be.

Invariant: the true ISR in the quorum is, at any moment, the committed ISR known here or one of the
proposals in ``unsettled`` and ``proposed``. The high watermark therefore counts their union, the
*maximal ISR*: a member that joined without the leader having heard of it is never left behind.
"""

from dataclasses import dataclass, replace

from quorate.common.types import BrokerId


@dataclass(frozen=True, slots=True)
class IsrState:
    """The ISR ``committed`` at ``version``, and the proposals whose outcome is not known.

    At most one proposal is in flight; ``in_flight`` is the number of that attempt.
    """

    committed: tuple[BrokerId, ...]
    version: int
    proposed: frozenset[BrokerId] = frozenset()
    unsettled: frozenset[BrokerId] = frozenset()
    in_flight: int | None = None

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """The committed ISR together with every change whose outcome is not known."""
        return self.proposed.union(self.unsettled, self.committed)

    @property
    def must_settle(self) -> bool:
        """Whether an earlier change may have been applied: only a newer version tells."""
        return bool(self.unsettled) and self.in_flight is None

    @classmethod
    def resumed(
        cls, committed: tuple[BrokerId, ...], version: int, replicas: tuple[BrokerId, ...]
    ) -> "IsrState":
        """Return the ISR of an epoch that an earlier incarnation of this broker led.

        A change that it proposed against this version may still be on its way, and every replica
        may be part of that change.
        """
        everybody = frozenset(replicas)
        return cls(committed, version, unsettled=everybody.difference(committed) and everybody)

    def propose(self, attempt: int, members: tuple[BrokerId, ...]) -> "IsrState":
        """Return the state with a proposal in flight."""
        assert self.in_flight is None, "one ISR change in flight per partition"
        return replace(self, proposed=frozenset(members), in_flight=attempt)

    def learn(self, version: int, committed: tuple[BrokerId, ...]) -> "IsrState":
        """Adopt the record at a newer version: it settles every proposal against an older one.

        A compare-and-set against a version that has passed can never succeed any more.
        """
        return self if version <= self.version else IsrState(committed, version)

    def refused(self) -> "IsrState":
        """Return the state after a proposal that was certainly not applied."""
        return replace(self, proposed=frozenset(), in_flight=None)

    def unknown(self) -> "IsrState":
        """Return the state after a proposal that may have been applied, or may be later."""
        return replace(
            self,
            proposed=frozenset(),
            unsettled=self.unsettled | self.proposed,
            in_flight=None,
        )
