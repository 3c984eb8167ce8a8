"""Offsets that a group is to have once transactions have ended: what they may not show until then.

Each bears its place in the log, as what a group has committed does, and so does the marker that
ends a transaction: it decides on what stands before it, and on nothing else. So whoever reads the
log from its beginning comes to the same as whoever wrote it, whatever is told of first.
"""

from collections.abc import Iterator, Mapping

from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.log_entries import TransactionEnd
from metadata_log.types import TopicPartition

Placed = dict[TopicPartition, tuple[int, CommittedOffset]]
"""Commits by partition, with the place of their batch."""


class Expected:
    """Offsets of a transaction on their way to the log: nobody knows yet where they will stand."""

    __slots__ = ("commits", "ends", "producer_id")

    def __init__(self, producer_id: int, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.producer_id = producer_id
        self.commits = commits
        self.ends: list[TransactionEnd] = []
        """Markers told of meanwhile; the first of them behind its place is its own."""

    def end_of(self, place: int) -> TransactionEnd | None:
        """What ended its transaction, if they stand at offset ``place``; None: nothing yet."""
        return next((end for end in self.ends if end.place > place), None)


class PendingOffsets:
    """Those of one group, by the producers whose transactions they are part of."""

    def __init__(self) -> None:
        self._placed: dict[int, Placed] = {}
        self._expected: dict[Expected, None] = {}

    def __bool__(self) -> bool:
        return bool(self._placed or self._expected)

    def __iter__(self) -> Iterator[TopicPartition]:
        """Partitions, perhaps more than once."""
        for placed in self._placed.values():
            yield from placed
        for expected in self._expected:
            yield from expected.commits

    def __contains__(self, tp: TopicPartition) -> bool:
        return any(tp in placed for placed in self._placed.values()) or any(
            tp in expected.commits for expected in self._expected
        )

    def has_open(self, producer_id: int) -> bool:
        """Whether something waits for the end of that producer's transaction."""
        return producer_id in self._placed or any(
            expected.producer_id == producer_id for expected in self._expected
        )

    def expect(self, expected: Expected) -> None:
        """They are on their way to the log: ``arrive`` or ``give_up`` follows."""
        self._expected[expected] = None

    def give_up(self, expected: Expected) -> None:
        """They are not in the log."""
        self._expected.pop(expected, None)

    def arrive(self, expected: Expected, place: int) -> Placed:
        """They are in the log, at offset ``place``; returns those that are committed by now."""
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
        """It is in the log, at offset ``place``, and so is no end of the transaction."""
        placed = self._placed.setdefault(producer_id, {})
        found = placed.get(tp)
        if found is None or found[0] <= place:
            placed[tp] = place, commit

    def forget(self, tp: TopicPartition, place: int) -> None:
        """A tombstone at offset ``place`` takes what stands before it, whatever becomes of it."""
        for producer_id, placed in list(self._placed.items()):
            if tp in placed and placed[tp][0] <= place:
                del placed[tp]
                if not placed:
                    del self._placed[producer_id]

    def end(self, end: TransactionEnd) -> Placed:
        """The transaction has ended; returns what is committed by that."""
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
