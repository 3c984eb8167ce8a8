"""The topics that a consumer group is subscribed to, by name and by regular expression."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from quorate.broker.coordinator.groups.consumer.consumer_member import MemberMetadata
from quorate.broker.coordinator.groups.consumer.regular_expressions import ResolvedRegex
from quorate.common.types import TopicId


class SubscribedTopic(Protocol):
    """A topic as the metadata of the cluster has it."""

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def partition_count(self) -> int: ...


class Topics(Protocol):
    """The topics of the cluster, such as ``MetadataCache`` knows them."""

    def topic(self, name: str) -> SubscribedTopic | None:
        """Return the topic with that name, or None if there is none."""

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic with that id, or None if there is none."""

    @property
    def topics(self) -> Mapping[str, SubscribedTopic]:
        """All topics by name."""

    @property
    def metadata_offset(self) -> int:
        """The place in the metadata log up to which changes of topics are known."""

    async def until_known(self) -> None:
        """Return once the topics of the cluster are known. Before, a topic that is not found may
        exist."""


def topics_hash(topics: Topics, names: Iterable[str]) -> int:
    """Return a number that changes when one of these topics is created, deleted or grows.

    0 means that none of them exists. Groups remember it in the log (KIP-1101), so it is the same in
    every process.
    """
    digest = hashlib.blake2b(digest_size=8)
    exists = False
    for name in sorted(names):
        topic = topics.topic(name)
        if topic is not None:
            exists = True
            digest.update(topic.topic_id + topic.partition_count.to_bytes(4))
    return int.from_bytes(digest.digest(), signed=True) if exists else 0


class ResolvedRegexes:
    """The regular expressions of a group with the topics that they match."""

    def __init__(self) -> None:
        self._by_regex: dict[str, ResolvedRegex] = {}

    def __contains__(self, regex: str) -> bool:
        return regex in self._by_regex

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_regex)

    def topics(self, regex: str) -> frozenset[str]:
        """Return the topics that match; none if that is not known yet."""
        found = self._by_regex.get(regex)
        return frozenset() if found is None else found.topics

    def matches(self, name: str) -> bool:
        """Return whether a topic is among those that match one of them."""
        return any(name in resolved.topics for resolved in self._by_regex.values())

    def all_topics(self) -> Iterator[str]:
        """Yield the topics that match any of them; a topic may come more than once."""
        for resolved in self._by_regex.values():
            yield from resolved.topics

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Return the names of the topics that a member is subscribed to."""
        if not metadata.topic_regex:
            return metadata.topic_names
        matched = self.topics(metadata.topic_regex)
        return metadata.topic_names | matched if metadata.topic_names else matched

    def put(self, regex: str, resolved: ResolvedRegex) -> None:
        """Take the topics that match now."""
        self._by_regex[regex] = resolved

    def forget(self, regex: str) -> None:
        """Forget an expression that nobody subscribes to."""
        self._by_regex.pop(regex, None)
