"""Gives out the records of one producer: every partition in turn, numbered in each."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.support.flapping.story import Lane, Sent

PARTITIONS: Final = 3
"""The number of partitions, one for each broker: a client has five requests in flight at a broker,
and they should be of one partition."""

UNANSWERED_MAX: Final = 100
"""A producer that has so many records in doubt sends nothing new: none must wait for so long that
its client gives it up, and what librdkafka does then can double others."""

SLOW: Final = "slow-"
"""The names of producers with a slow link begin so."""

ABORTED_EVERY: Final = 5


class Numbers:
    """The next record of a producer."""

    def __init__(self, producer: str, topics: Sequence[str]) -> None:
        self._lanes = [
            Lane(topic, partition, producer) for partition in range(PARTITIONS) for topic in topics
        ]
        self._given: Counter[Lane] = Counter()
        self._turn = 0

    def next(self) -> Sent:
        lane = self._lanes[self._turn % len(self._lanes)]
        self._turn += 1
        self._given[lane] += 1
        return Sent(lane, self._given[lane])


def transaction_ends_in_abort(count: int) -> bool:
    """Say whether the producer aborts its ``count``-th transaction of its own accord."""
    return count % ABORTED_EVERY == 0
