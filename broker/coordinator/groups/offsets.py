"""The offsets that one group has committed, and which of them nobody needs any more."""

from collections.abc import Collection, Iterator, Set
from itertools import chain

from broker.coordinator.groups.commits import CommittedOffset
from broker.coordinator.groups.pending_offsets import Expected, PendingOffsets
from broker.coordinator.log_entries import TransactionEnd
from metadata_log.types import TopicPartition


class CommittedOffsets:
    """What is in the log for good; commits on their way there are not shown, but not overlooked.

    Each commit bears the place in the log where it stands: whichever stands last counts, in
    whatever order the outcomes are reported. That of a transaction counts from its own place on,
    not from its marker's: compaction keeps the last commit of a partition, too.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
        self.pending = PendingOffsets()
        """Of transactions that have not ended."""
        self._expected: dict[int, Collection[TopicPartition]] = {}
        """Of commits on their way to the log that are part of no transaction, in their order."""
        self._sent = 0

    def __bool__(self) -> bool:
        """Whether there is anything, or may be."""
        return bool(self._committed or self.pending or self._expected)

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

    def expect(self, tps: Collection[TopicPartition]) -> int:
        """Commits of these are on their way to the log: ``expect_no_more`` follows, with this."""
        self._sent += 1
        self._expected[self._sent] = tps
        return self._sent

    def expect_no_more(self, sent: int) -> None:
        """They have arrived, or never will."""
        del self._expected[sent]

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
        """Partitions of which there is an offset, or may be one when the log has what is on its way
        there, and transactions have ended."""
        return {*self._committed, *self._to_be_replaced()}

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
        While an offset is about to be replaced, by a commit or a transaction, it stays.
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
