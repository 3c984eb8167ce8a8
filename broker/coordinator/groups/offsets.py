"""The offsets that one group has committed, and which of them nobody needs any more."""

from collections.abc import Iterator, Set

from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.groups.pending_offsets import Expected, PendingOffsets
from broker.coordinator.log_entries import TransactionEnd
from metadata_log.types import TopicPartition


class CommittedOffsets:
    """What is in the log for good; commits on their way there are not shown.

    Each commit bears the place in the log where it stands: whichever stands last counts, in
    whatever order the outcomes are reported. That of a transaction counts from its own place on,
    not from its marker's: compaction keeps the last commit of a partition, too.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
        self.pending = PendingOffsets()
        """Of transactions that have not ended."""

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def get(self, tp: TopicPartition) -> CommittedOffset | None:
        """None: nothing is committed of that partition."""
        found = self._committed.get(tp)
        return None if found is None else found[1]

    def record(self, tp: TopicPartition, commit: CommittedOffset, place: int) -> None:
        """The commit is in the log, in the batch at offset ``place``."""
        found = self._committed.get(tp)
        if found is None or found[0] <= place:
            self._committed[tp] = place, commit

    def forget(self, tp: TopicPartition, place: int) -> None:
        """Its tombstone is in the log, in the batch at offset ``place``."""
        found = self._committed.get(tp)
        if found is not None and found[0] <= place:
            del self._committed[tp]
        self.pending.forget(tp, place)

    def arrive(self, expected: Expected, place: int) -> None:
        """Offsets of a transaction are in the log, in the batch at offset ``place``."""
        for tp, (at, commit) in self.pending.arrive(expected, place).items():
            self.record(tp, commit, at)

    def end(self, end: TransactionEnd) -> None:
        """A transaction has ended: what it wanted to commit counts from now on, or never."""
        for tp, (at, commit) in self.pending.end(end).items():
            self.record(tp, commit, at)

    def known(self) -> set[TopicPartition]:
        """Partitions of which there is an offset, or may be one when transactions have ended."""
        return {*self._committed, *self.pending}

    def of_topics(self, topics: Set[str]) -> list[TopicPartition]:
        """Partitions of those topics of which there is an offset."""
        return [tp for tp in self._committed if tp.topic in topics]

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        unused_since_ms: int | None,
        consumed_topics: Set[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Those whose time is up, by KIP-211.

        A group without members keeps everything for ``retention_ms`` from ``unused_since_ms`` on,
        when its last member left; None: its members keep what they consume, of
        ``consumed_topics``. What was committed without a group of members counts from its commit.
        While a transaction is to replace an offset, it stays.
        """
        pending = set(self.pending)
        return [
            tp
            for tp, (_, commit) in self._committed.items()
            if tp.topic not in consumed_topics
            and tp not in pending
            and now_ms - max(commit.committed_ms, unused_since_ms or 0) >= retention_ms
        ]
