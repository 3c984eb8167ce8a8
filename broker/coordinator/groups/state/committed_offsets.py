"""Committed offsets of a group, pending ones of open transactions, and their expiry."""

from collections.abc import Collection, Iterator, Mapping, Set
from itertools import chain
from typing import NamedTuple

from quorate.broker.coordinator.shards.coordinator_records import TransactionEnd
from quorate.common.types import TopicPartition


class CommittedOffset(NamedTuple):
    """One committed offset.

    ``committed_ms`` is wall-clock time. ``leader_epoch`` is -1 if the client did not send it.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = 0


# Pending offsets: they become visible only when their transactions are committed.
#
# Each of them has its offset in the log, its place, as committed offsets have, and so has the
# marker that ends a transaction. The marker decides on the records before it, and on nothing else.
# So a reader of the log from its beginning comes to the same result as the writer, in whatever
# order the outcomes are reported.


Placed = dict[TopicPartition, tuple[int, CommittedOffset]]
"""Commits by partition, each with the base offset of its batch in the log."""


class Expected:
    """Offsets of a transaction that are being written to the log, so their place is not known
    yet."""

    __slots__ = ("commits", "ends", "producer_id")

    def __init__(self, producer_id: int, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.producer_id = producer_id
        self.commits = commits
        self.ends: list[TransactionEnd] = []
        """Markers reported during the write; the first one after its place ends its transaction."""

    def end_of(self, place: int) -> TransactionEnd | None:
        """Return the marker that ends the transaction of records at offset ``place``, or None."""
        return next((end for end in self.ends if end.place > place), None)


class PendingOffsets:
    """The pending offsets of one group, by the producers whose transactions they belong to."""

    def __init__(self) -> None:
        self._placed: dict[int, Placed] = {}
        self._expected: dict[Expected, None] = {}

    def __bool__(self) -> bool:
        return bool(self._placed or self._expected)

    def __iter__(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions; a partition may occur more than once."""
        for placed in self._placed.values():
            yield from placed
        for expected in self._expected:
            yield from expected.commits

    def __contains__(self, tp: TopicPartition) -> bool:
        return any(tp in placed for placed in self._placed.values()) or any(
            tp in expected.commits for expected in self._expected
        )

    def has_open(self, producer_id: int) -> bool:
        """Return whether an offset waits for the end of that producer's transaction."""
        return producer_id in self._placed or any(
            expected.producer_id == producer_id for expected in self._expected
        )

    def expect(self, expected: Expected) -> None:
        """Remember offsets that are being written to the log; ``arrive`` or ``give_up`` follows."""
        self._expected[expected] = None

    def give_up(self, expected: Expected) -> None:
        """Drop offsets that did not get into the log."""
        self._expected.pop(expected, None)

    def arrive(self, expected: Expected, place: int) -> Placed:
        """Take offsets that are in the log at offset ``place``; return those that are committed by
        now."""
        self._expected.pop(expected, None)
        end = expected.end_of(place)
        if end is None:
            for tp, commit in expected.commits.items():
                self.add(expected.producer_id, tp, commit, place)
        if end is None or not end.committed:
            return {}
        return {tp: (place, commit) for tp, commit in expected.commits.items()}

    def add(
        self, producer_id: int, tp: TopicPartition, commit: CommittedOffset, place: int
    ) -> None:
        """Take an offset that is in the log at offset ``place``, in a transaction that has not
        ended."""
        placed = self._placed.setdefault(producer_id, {})
        found = placed.get(tp)
        if found is None or found[0] <= place:
            placed[tp] = place, commit

    def forget(self, tp: TopicPartition, place: int) -> None:
        """Drop the offsets before a tombstone at offset ``place``, whatever the result of their
        transaction."""
        for producer_id, placed in list(self._placed.items()):
            if tp in placed and placed[tp][0] <= place:
                del placed[tp]
                if not placed:
                    del self._placed[producer_id]

    def end(self, end: TransactionEnd) -> Placed:
        """End a transaction, and return the offsets that are committed by that."""
        for expected in self._expected:
            if expected.producer_id == end.producer_id:
                expected.ends.append(end)
        placed = self._placed.get(end.producer_id)
        if placed is None:
            return {}
        decided = {tp: found for tp, found in placed.items() if found[0] < end.place}
        for tp in decided:
            del placed[tp]
        if not placed:
            del self._placed[end.producer_id]
        return decided if end.committed else {}


# The committed offsets of one group, and the rules for their expiry.


class CommittedOffsets:
    """The offsets of a group that are committed in the log.

    Commits that are being written are not visible, but expiry takes them into account. Each commit
    has its place in the log. The last one in the log counts, in whatever order the outcomes are
    reported. An offset of a transaction counts from its own place on, not from the place of its
    marker, because compaction keeps the last commit of a partition, too.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
        self.pending = PendingOffsets()
        """Offsets of transactions that have not ended."""
        self._expected: dict[int, Collection[TopicPartition]] = {}
        """The partitions of commits without a transaction that are being written, in order."""
        self._sent = 0

    def __bool__(self) -> bool:
        """Return whether there is an offset, or one may still come."""
        return bool(self._committed or self.pending or self._expected)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def get(self, tp: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset of a partition, or None if there is none."""
        found = self._committed.get(tp)
        return None if found is None else found[1]

    def record(self, tp: TopicPartition, commit: CommittedOffset, place: int) -> None:
        """Record a commit that is in the log, in the batch at offset ``place``."""
        found = self._committed.get(tp)
        if found is None or found[0] <= place:
            self._committed[tp] = place, commit

    def expect(self, tps: Collection[TopicPartition]) -> int:
        """Remember that commits of these partitions are being written; return a number for
        ``expect_no_more``."""
        self._sent += 1
        self._expected[self._sent] = tps
        return self._sent

    def expect_no_more(self, sent: int) -> None:
        """Forget about a write that has ended, successfully or not."""
        del self._expected[sent]

    def forget(self, tp: TopicPartition, place: int) -> None:
        """Forget an offset whose tombstone is in the log, in the batch at offset ``place``."""
        found = self._committed.get(tp)
        if found is not None and found[0] <= place:
            del self._committed[tp]
        self.pending.forget(tp, place)

    def arrive(self, expected: Expected, place: int) -> None:
        """Record offsets of a transaction that are in the log, in the batch at offset ``place``."""
        for tp, (at, commit) in self.pending.arrive(expected, place).items():
            self.record(tp, commit, at)

    def end(self, end: TransactionEnd) -> None:
        """End a transaction: its offsets are committed from now on, or dropped."""
        for tp, (at, commit) in self.pending.end(end).items():
            self.record(tp, commit, at)

    def known(self) -> set[TopicPartition]:
        """Return the partitions that have a committed offset, or get one if the current writes and
        transactions."""
        return {*self._committed, *self._to_be_replaced()}

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        unused_since_ms: int | None,
        consumed_topics: Set[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired (KIP-211).

        A group without members keeps all offsets for ``retention_ms`` after ``unused_since_ms``,
        the time when its last member left. If that is None, the group has members, and they keep
        the offsets of ``consumed_topics``. An offset that was committed without members expires
        after its own commit time. An offset that is about to be replaced, by a commit or a
        transaction, is kept.
        """
        to_be_replaced = self._to_be_replaced()
        return [
            tp
            for tp, (_, commit) in self._committed.items()
            if tp.topic not in consumed_topics
            and tp not in to_be_replaced
            and now_ms - max(commit.committed_ms, unused_since_ms or 0) >= retention_ms
        ]

    def _to_be_replaced(self) -> set[TopicPartition]:
        return {*self.pending, *chain.from_iterable(self._expected.values())}
