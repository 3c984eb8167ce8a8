"""Compares what producers say of their records with what the logs have of them.

Each producer numbers its records per partition, and the value of a record is its number. So a
record is known by topic, partition, producer and number.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Lane(NamedTuple):
    """The records of one producer in one partition: their order must be kept."""

    topic: str
    partition: int
    producer: str


class Sent(NamedTuple):
    """A record as its producer numbers it."""

    lane: Lane
    number: int


@dataclass
class Story:
    """The outcome of a producer's records, as the producer was told. One thread writes it at a
    time."""

    acknowledged: set[Sent] = field(default_factory=set)
    """The records that must be read: delivered, and with their transaction committed if they have
    one."""
    aborted: set[Sent] = field(default_factory=set)
    """The records that a reader of committed records must not get."""
    uncertain: list[frozenset[Sent]] = field(default_factory=list)
    """Transactions whose end nobody knows: each is read as a whole, or not at all."""
    failures: list[str] = field(default_factory=list)
    """Why producers gave up on records, or began anew."""
    epochs: int = 0
    """The number of new epochs that a merely idempotent producer began, as far as its client
    says."""


Read = Mapping[Lane, list[int]]
"""The numbers in each lane, in the order of the log."""


@dataclass(frozen=True)
class Verdict:
    """The faults in what was read. If all fields are empty, there are none."""

    lost: list[Sent]
    twice: list[Sent]
    disordered: list[Sent]
    aborted: list[Sent]
    torn: int
    """Transactions of unknown end that were read in part."""

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.twice or self.disordered or self.aborted or self.torn)

    def __str__(self) -> str:
        told = [
            f"{len(found)} {what} ({min(found)})"
            for what, found in (
                ("lost", self.lost),
                ("twice", self.twice),
                ("out of order", self.disordered),
                ("aborted but read", self.aborted),
            )
            if found
        ]
        if self.torn:
            told.append(f"{self.torn} transactions torn")
        return ", ".join(told) or "0 lost, 0 twice, order kept"


def judge(stories: Iterable[Story], read: Read) -> Verdict:
    """Compare what producers were told with what was read."""
    told = list(stories)
    count = {lane: Counter(numbers) for lane, numbers in read.items()}

    def is_read(sent: Sent) -> bool:
        return sent.number in count.get(sent.lane, ())

    return Verdict(
        lost=[sent for story in told for sent in story.acknowledged if not is_read(sent)],
        twice=[
            Sent(lane, number)
            for lane, numbers in count.items()
            for number, times in numbers.items()
            if times > 1
        ],
        disordered=[
            Sent(lane, later)
            for lane, numbers in read.items()
            for earlier, later in pairwise(numbers)
            if later < earlier
        ],
        aborted=[sent for story in told for sent in story.aborted if is_read(sent)],
        torn=sum(
            len({is_read(sent) for sent in transaction}) > 1
            for story in told
            for transaction in story.uncertain
        ),
    )


def lanes_of(records: Iterable[tuple[Lane, int]]) -> Read:
    """Gather records that come in the order of their logs."""
    lanes: dict[Lane, list[int]] = defaultdict(list)
    for lane, number in records:
        lanes[lane].append(number)
    return lanes
