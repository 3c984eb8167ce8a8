"""The offsets that one group has committed, and which of them nobody needs any more."""

from collections.abc import Iterator, Set
from typing import NamedTuple

from metadata_log.types import TopicPartition


class CommittedOffset(NamedTuple):
    """``committed_ms``: wall clock. ``leader_epoch`` -1: the client did not say."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = 0


class CommittedOffsets:
    """What is in the log for good; commits on their way there are not shown.

    Each commit bears the place in the log where it stands: whichever stands last counts, in
    whatever order the outcomes are reported.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, tuple[int, CommittedOffset]] = {}

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    def get(self, tp: TopicPartition) -> CommittedOffset | None:
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

    def of_topics(self, topics: Set[str]) -> list[TopicPartition]:
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
        """
        return [
            tp
            for tp, (_, commit) in self._committed.items()
            if tp.topic not in consumed_topics
            and now_ms - max(commit.committed_ms, unused_since_ms or 0) >= retention_ms
        ]
