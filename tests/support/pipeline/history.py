"""Checks what must be true of a pipeline's history, whatever was killed. Pure.

Each check takes what clients were told and what the topics hold, and returns violations in words;
``tests/unit/broker/test_pipeline_history.py`` has a history that each must refuse.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from tests.support.pipeline.journal import Event, Kind, Place


class Fate(Enum):
    """The fate of a transaction, as far as it is known from outside."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    """A commit was never asked for: it was aborted on purpose, or whoever ran it died before."""
    UNKNOWN = "unknown"
    """A commit was asked for, and not answered."""


@dataclass
class Transaction:
    """One transaction as its producer knew it."""

    name: str
    sources: frozenset[Place] = frozenset()
    """The places in the input of the records that its own records were made of."""
    fate: Fate = Fate.NOT_COMMITTED


class Copy(NamedTuple):
    """A record of the output: what it was made of, and in which transaction.

    It lies in the partition with the number of its source's.
    """

    source: Place
    offset: int
    transaction: str


@dataclass
class Reading:
    """The records that one member read of one partition while it had it without interruption."""

    partition: int
    assigned_at_s: float
    begun_at_s: float = 0.0
    offsets: list[int] = field(default_factory=list)


def transactions(journal: Iterable[Event]) -> dict[str, Transaction]:
    """Return the transactions of one process by name."""
    found: dict[str, Transaction] = {}
    for event in journal:
        match event.kind:
            case Kind.BEGUN:
                found[event.transaction] = Transaction(event.transaction, frozenset(event.places))
            case Kind.COMMITTING:
                found[event.transaction].fate = Fate.UNKNOWN
            case Kind.COMMITTED:
                found[event.transaction].fate = Fate.COMMITTED
            case Kind.ABORTED:
                # Only a commit that was refused for good is followed by this.
                found[event.transaction].fate = Fate.NOT_COMMITTED
            case _:
                pass
    return found


def copied_once(inputs: Iterable[Place], output: Sequence[Copy]) -> list[str]:
    """Every record of the input has one committed copy: none is lost, none is there twice."""
    counts = Counter(copy.source for copy in output)
    expected = set(inputs)
    return [
        *_examples("lost", [source for source in sorted(expected) if not counts[source]]),
        *_examples("copied twice", [s for s, count in sorted(counts.items()) if count > 1]),
        *_examples("made of nothing", sorted(counts.keys() - expected)),
    ]


def copied_in_order(output: Sequence[Copy]) -> list[str]:
    """Check that in each partition later records of the input have later copies."""
    found = []
    for partition, copies in _by_partition(output).items():
        for before, after in pairwise(sorted(copies, key=lambda copy: copy.offset)):
            if before.source >= after.source:
                found.append(
                    f"order lost: in output {partition} the copy of {after.source} at offset "
                    f"{after.offset} comes after that of {before.source} at {before.offset}"
                )
    return found[:5]


def all_or_nothing(told: Mapping[str, Transaction], output: Sequence[Copy]) -> list[str]:
    """Check that transactions that were committed are there as a whole, that those that were not
    are not there, and that those of unknown fate are one of both."""
    seen: dict[str, set[Place]] = defaultdict(set)
    for copy in output:
        seen[copy.transaction].add(copy.source)
    found = [f"transaction {name} was begun by nobody" for name in seen.keys() - told.keys()]
    for name, transaction in told.items():
        there = seen.get(name, set())
        if transaction.fate is Fate.COMMITTED and there != transaction.sources:
            found.append(
                f"transaction {name} was committed: {len(there)} of "
                f"{len(transaction.sources)} records are there"
            )
        elif transaction.fate is Fate.NOT_COMMITTED and there:
            found.append(f"transaction {name} was not committed: {len(there)} records are there")
        elif there and there != transaction.sources:
            found.append(
                f"transaction {name} is torn: {len(there)} of {len(transaction.sources)} records"
            )
    return found


def offsets_fit(committed: Mapping[int, int], output: Sequence[Copy]) -> list[str]:
    """Offsets are committed with the copies, in one transaction: neither is ahead of the other."""
    last = {p: max(copy.source[1] for copy in of) for p, of in _by_partition(output).items()}
    return [
        f"input {partition}: {committed.get(partition)} is committed, "
        f"the last copy is of offset {offset}"
        for partition, offset in last.items()
        if committed.get(partition) != offset + 1
    ]


def never_back(samples: Iterable[Mapping[int, int]]) -> list[str]:
    """Committed offsets by partition, as one client was told them one after the other."""
    found = []
    highest: dict[int, int] = {}
    for number, sample in enumerate(samples):
        for partition, offset in sample.items():
            if offset < highest.get(partition, offset):
                found.append(
                    f"partition {partition}: offset {offset} was committed in sample {number}, "
                    f"and {highest[partition]} before"
                )
            highest[partition] = max(offset, highest.get(partition, offset))
    return found


def shown_early(live: Sequence[Copy], output: Sequence[Copy]) -> list[str]:
    """Check that what a reader of committed records was shown meanwhile is there in the end."""
    there = set(output)
    return _examples("shown, and then gone", [copy for copy in live if copy not in there])


def readings(journal: Iterable[Event]) -> list[Reading]:
    """Return what one process of a plain group read, one assignment of a partition after the
    other."""
    found: list[Reading] = []
    current: dict[int, Reading] = {}
    for event in journal:
        if event.kind is Kind.ASSIGNED:
            for partition, _ in event.places:
                current[partition] = Reading(partition, event.at_s)
                found.append(current[partition])
        elif event.kind is Kind.READ:
            for partition, offset in event.places:
                reading = current[partition]
                reading.begun_at_s = reading.begun_at_s or event.at_s
                reading.offsets.append(offset)
    return found


def all_read(inputs: Iterable[Place], journals: Iterable[Iterable[Event]]) -> list[str]:
    """Every record was read by somebody."""
    read = {p for journal in journals for e in journal if e.kind is Kind.READ for p in e.places}
    return _examples("never read", sorted(set(inputs) - read))


def taken_over_where_left(journals: Sequence[Sequence[Event]]) -> list[str]:
    """Whoever is assigned a partition goes on where the group was: where a commit of before said,
    and no earlier than the last one that was answered; from there on nothing is passed over.
    """
    found = []
    for reading in (each for journal in journals for each in readings(journal) if each.offsets):
        partition, first = reading.partition, reading.offsets[0]
        sent = _commits(journals, Kind.OFFSETS_COMMITTING, partition, reading.begun_at_s)
        answered = _commits(journals, Kind.OFFSETS_COMMITTED, partition, reading.assigned_at_s)
        if first and first not in sent:
            found.append(f"partition {partition}: read from {first}, which nobody had committed")
        if answered and first < max(answered):
            found.append(f"partition {partition}: read from {first}, after commit {max(answered)}")
        for before, after in pairwise(reading.offsets):
            if after != before + 1:
                found.append(f"partition {partition}: {after} was read after {before}")
    return found


def _commits(
    journals: Sequence[Sequence[Event]], kind: Kind, partition: int, before_s: float
) -> set[int]:
    return {
        offset
        for journal in journals
        for event in journal
        if event.kind is kind and event.at_s < before_s
        for p, offset in event.places
        if p == partition
    }


def _by_partition(output: Iterable[Copy]) -> dict[int, list[Copy]]:
    found: dict[int, list[Copy]] = defaultdict(list)
    for copy in output:
        found[copy.source[0]].append(copy)
    return found


def _examples(what: str, found: Sequence[object]) -> list[str]:
    return [f"{what}: {len(found)}, as {found[0]}"] if found else []
