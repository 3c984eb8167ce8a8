"""What is provable of a share group from what its members saw, and when (KIP-932).

All times are those of one monotonic clock. A member knows when it sent a request and when the
answer came; a broker acted in between. So a check speaks only where every order of events that fits
the notes is a fault:

- A record whose acceptance or rejection was answered is in no answer to a request that was sent
  after that.
- A member surely has a record from the arrival of the answer that brought it, up to the time of the
  lock after the *request*, unless it gives the record up before. Nobody else gets it meanwhile.
  What a leader only handed out, the next leader hands out again, so this is checked among the
  deliveries of one leader epoch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import Final, NamedTuple

CLOCK_STEP_S: Final = 0.005
"""Locks are measured in milliseconds, by brokers that round."""


class Record(NamedTuple):
    """A record of the topic."""

    partition: int
    offset: int


@dataclass(slots=True)
class Delivery:
    """A record in the hands of a member."""

    worker: str
    record: Record
    asked_at_s: float
    """When the request was sent."""
    got_at_s: float
    """When the answer came."""
    lock_s: float
    leader_epoch: int | None = None
    """The epoch in which the leader handed it out, if that is known."""
    locked_until_s: float = -inf
    """The time up to which the lock is surely valid."""
    given_up_at_s: float = inf
    """When the member began to acknowledge it, or when its session may have ended."""

    def __post_init__(self) -> None:
        self.extend(self.asked_at_s)

    def extend(self, asked_at_s: float) -> None:
        """Note that the lock was renewed by a request that was sent then."""
        self.locked_until_s = asked_at_s + self.lock_s - CLOCK_STEP_S

    @property
    def held_until_s(self) -> float:
        return min(self.locked_until_s, self.given_up_at_s)

    def clashes_with(self, later: "Delivery") -> bool:
        """Return whether a broker handed the record out while it was surely held already.

        ``later`` came later. If it was asked for after this one came, it was handed out in between.
        Otherwise nobody knows which one was first, but both were held when ``later`` came.
        """
        if self.leader_epoch is None or self.leader_epoch != later.leader_epoch:
            return False
        is_in_order = later.asked_at_s >= self.got_at_s
        has_both = is_in_order or later.got_at_s < later.held_until_s
        return has_both and later.got_at_s < self.held_until_s


def delivered_after_the_answer(deliveries: Iterable[Delivery], final_at_s: float) -> Iterator[str]:
    """Yield a fault for each delivery that was asked for after the record's end was answered."""
    for one in deliveries:
        if one.asked_at_s > final_at_s:
            late_s = one.asked_at_s - final_at_s
            yield f"{one.worker} got {one.record}, asking {late_s:.3f} s after it was settled"


def held_twice(deliveries: Sequence[Delivery]) -> Iterator[str]:
    """Yield a fault for each pair of deliveries of one record that were held at one time."""
    for first, later in combinations(sorted(deliveries, key=lambda one: one.got_at_s), 2):
        if first.clashes_with(later):
            left_s = first.held_until_s - later.got_at_s
            yield (
                f"{later.worker} got {later.record} {left_s:.3f} s before the end of the lock of "
                f"{first.worker}, in leader epoch {first.leader_epoch}"
            )
