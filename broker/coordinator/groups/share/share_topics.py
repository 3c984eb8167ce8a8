"""The topics of a share group whose partitions have a state with the share coordinator (KIP-932).

A partition is assigned to members once its state is there. The log has what is being initialized
and deleted, too, so that the next group coordinator can delete all that there may be.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from quorate.common.types import TopicId

TopicPartitions: TypeAlias = Mapping[TopicId, frozenset[int]]


NO_NAMES: Final[Mapping[TopicId, str]] = {}
NO_PARTITIONS: Final[TopicPartitions] = {}


class ShareTopics(NamedTuple):
    """Partitions by topic, with the names that the topics had, as the log has them."""

    names: Mapping[TopicId, str] = NO_NAMES
    initializing: TopicPartitions = NO_PARTITIONS
    initialized: TopicPartitions = NO_PARTITIONS
    deleting: frozenset[TopicId] = frozenset()

    def begin(self, wanted: TopicPartitions, names: Mapping[TopicId, str]) -> "ShareTopics":
        """Return the topics once partitions are being initialized."""
        return self._replace(
            names={**self.names, **names},
            initializing=_union(self.initializing, wanted),
            deleting=self.deleting - wanted.keys(),
        )

    def done(self, done: TopicPartitions) -> "ShareTopics":
        """Return the topics once partitions are initialized."""
        return self._replace(
            initializing=_difference(self.initializing, done),
            initialized=_union(self.initialized, done),
        )

    def remove(self, gone: Iterable[TopicId]) -> "ShareTopics":
        """Return the topics once some of them are being deleted."""
        topics = frozenset(gone)
        return self._replace(
            initializing={t: own for t, own in self.initializing.items() if t not in topics},
            initialized={t: own for t, own in self.initialized.items() if t not in topics},
            deleting=self.deleting | topics,
        )

    def removed(self, gone: Iterable[TopicId]) -> "ShareTopics":
        """Return the topics once nothing of some of them is left."""
        left = self.remove(gone)
        topics = frozenset(gone)
        return left._replace(
            names={t: name for t, name in self.names.items() if t not in topics},
            deleting=left.deleting - topics,
        )

    def missing(self, wanted: TopicPartitions) -> TopicPartitions:
        """Return the partitions that are not initialized."""
        return _difference(wanted, self.initialized)


def _union(one: TopicPartitions, other: TopicPartitions) -> TopicPartitions:
    none: frozenset[int] = frozenset()
    return {t: one.get(t, none) | other.get(t, none) for t in {**one, **other}}


def _difference(one: TopicPartitions, other: TopicPartitions) -> TopicPartitions:
    left = {t: own - other.get(t, frozenset()) for t, own in one.items()}
    return {t: own for t, own in left.items() if own}
