"""The topic of a share group's dead letters, or the reason why there are none (KIP-1191)."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from quorate.common.types import BrokerId, TopicId, TopicPartition

_INTERNAL: Final = "__"
"""The beginning of the names of internal topics."""


class LedPartition(Protocol):
    """A partition of a topic, as the metadata image has it."""

    @property
    def leader(self) -> BrokerId: ...


class ExistingTopic(Protocol):
    """A topic, as the metadata image has it."""

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def partitions(self) -> Sequence[LedPartition]: ...


class DeadLetterSettings(NamedTuple):
    """What the group, the brokers and the topic say of dead letters. ``existing`` is None if there
    is no such topic, and the rest means nothing then."""

    topic: str
    prefix: str
    creates: bool
    """Whether the topic is created if it does not exist."""
    existing: ExistingTopic | None = None
    is_enabled: bool = False
    """Whether the topic may be a dead letter topic."""
    batch_bytes_max: int = 0


class Place(NamedTuple):
    """The partition that gets the dead letters of a partition."""

    tp: TopicPartition
    topic_id: TopicId
    leader: BrokerId
    batch_bytes_max: int


class Absent(NamedTuple):
    """The topic does not exist, and is to be created."""

    topic: str


class Misconfigured(NamedTuple):
    """No dead letter can be written before a configuration changes."""

    why: str


def place_of(settings: DeadLetterSettings, source_partition: int) -> Place | Absent | Misconfigured:
    """Return where the dead letters of a partition go. As in Kafka, partitions of the source are
    dealt among those of the dead letter topic in turn."""
    topic, existing = settings.topic, settings.existing
    if topic.startswith(_INTERNAL):
        return Misconfigured(f"{topic} begins with {_INTERNAL} as internal topics do")
    if not topic.startswith(settings.prefix):
        return Misconfigured(
            f"{topic} does not begin with {settings.prefix!r} "
            "(errors.deadletterqueue.topic.name.prefix)"
        )
    if existing is None:
        if settings.creates:
            return Absent(topic)
        return Misconfigured(
            f"topic {topic} does not exist, and is not created "
            "(errors.deadletterqueue.auto.create.topics.enable)"
        )
    if not settings.is_enabled:
        return Misconfigured(
            f"topic {topic} takes no dead letters (errors.deadletterqueue.group.enable)"
        )
    number = source_partition % len(existing.partitions)
    leader = existing.partitions[number].leader
    tp = TopicPartition(topic, number)
    return Place(tp, existing.topic_id, leader, settings.batch_bytes_max)
