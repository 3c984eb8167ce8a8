"""What UpdateMetadata told this broker: the cluster as its Kafka clients are to see it.

Leadership reaches clients through here alone, never from the watched image, so brokers and their
clients hear of it from one source, in one order (C19). Topics arrive in packed columns and stay
packed until asked for: a broker that serves few of 200,000 partitions unpacks few.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from metadata_log.image import interned
from metadata_log.record_codec import decode_endpoint
from metadata_log.types import (
    DEFAULT_LISTENER,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
    TopicPartition,
)
from quorate_proto.v1.control_pb2 import PeerBroker, TopicMetadata, UpdateMetadataRequest

log = logging.getLogger(__name__)


class CachedBroker(msgspec.Struct, frozen=True, gc=False):
    """A live broker."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    kafka: Endpoint
    grpc: Endpoint
    rack: str
    listeners: Mapping[str, Endpoint]
    """Where clients find it, by the name of the listener they came by."""


class CachedPartition(msgspec.Struct, frozen=True, gc=False):
    """Leadership of one partition; leader ``NO_BROKER`` if it is offline."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


class CachedTopic:
    """A topic. ``partitions`` is unpacked at the first look and kept."""

    __slots__ = ("_packed", "_partitions", "name", "topic_id")

    def __init__(self, packed: TopicMetadata) -> None:
        self.name = packed.topic
        self.topic_id = TopicId(packed.topic_id)
        self._packed: TopicMetadata | None = packed
        self._partitions: tuple[CachedPartition, ...] = ()

    @property
    def partition_count(self) -> int:
        """Without unpacking them."""
        return len(self._partitions if self._packed is None else self._packed.leaders)

    @property
    def partitions(self) -> tuple[CachedPartition, ...]:
        """Partition 0, 1, 2, …"""
        if self._packed is not None:
            self._partitions = tuple(_unpacked(self._packed))
            self._packed = None
        return self._partitions


class MetadataCache:
    """Brokers, topics and the controller, as of ``metadata_offset``; 0 until first told."""

    def __init__(self) -> None:
        self.metadata_offset = MetadataOffset(0)
        self.controller_id = NO_BROKER
        self.brokers: Mapping[BrokerId, CachedBroker] = {}
        self._topics: dict[str, CachedTopic] = {}
        self._names: dict[TopicId, str] = {}
        self.on_gone: Callable[[Mapping[str, int]], None] = _nobody_cares
        """Told after each update in which partitions were deleted: of which topic, and from which
        number on; there may be others of the same names now."""

    @property
    def topics(self) -> Mapping[str, CachedTopic]:
        """All topics by name."""
        return self._topics

    def topic(self, name: str) -> CachedTopic | None:
        return self._topics.get(name)

    def partition_count(self, name: str) -> int:
        """Of the topic of that name; 0: there is none."""
        topic = self._topics.get(name)
        return 0 if topic is None else topic.partition_count

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Name of the topic with that id, None if there is none."""
        return self._names.get(topic_id)

    def partition(self, tp: TopicPartition) -> CachedPartition | None:
        topic = self._topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> BrokerId:
        """Leader of ``tp``; ``NO_BROKER`` if it has none or is not known."""
        partition = self.partition(tp)
        return NO_BROKER if partition is None else partition.leader

    def update(self, request: UpdateMetadataRequest) -> None:
        """Take in a fenced request: all of it, or what changed on top of what is known."""
        gone = self._gone(request)
        if request.full:
            self._topics.clear()
            self._names.clear()
        for name in request.removed_topics:
            self._forget(name)
        for packed in request.topics:
            self._forget(packed.topic)
            topic = CachedTopic(packed)
            self._topics[topic.name] = topic
            self._names[topic.topic_id] = topic.name
        self.brokers = {broker.broker_id: broker for broker in map(_broker, request.brokers)}
        self.controller_id = BrokerId(request.header.controller_id)
        self.metadata_offset = MetadataOffset(request.header.metadata_offset)
        if gone:
            self.on_gone(gone)

    def _gone(self, request: UpdateMetadataRequest) -> dict[str, int]:
        """Topics that have fewer partitions than was known, and how many are still the same."""
        told = {packed.topic: packed for packed in request.topics}
        gone: dict[str, int] = {}
        for name in self._topics if request.full else {*request.removed_topics, *told}:
            known, now = self._topics.get(name), told.get(name)
            if known is None:
                continue
            is_same = now is not None and now.topic_id == known.topic_id
            left = len(now.leaders) if now is not None and is_same else 0
            if left < known.partition_count:
                gone[name] = left
        return gone

    def _forget(self, name: str) -> None:
        known = self._topics.pop(name, None)
        if known is not None:
            del self._names[known.topic_id]


def _nobody_cares(_gone: Mapping[str, int]) -> None:
    pass


def _broker(message: PeerBroker) -> CachedBroker:
    return CachedBroker(
        broker_id=BrokerId(message.broker_id),
        epoch=BrokerEpoch(message.broker_epoch),
        kafka=decode_endpoint(message.kafka),
        grpc=decode_endpoint(message.grpc),
        rack=message.rack,
        listeners=_listeners(message),
    )


def _listeners(message: PeerBroker) -> Mapping[str, Endpoint]:
    if not message.listeners:
        return {DEFAULT_LISTENER: decode_endpoint(message.kafka)}
    return {one.name: decode_endpoint(one.endpoint) for one in message.listeners}


def _unpacked(packed: TopicMetadata) -> Iterator[CachedPartition]:
    everyone, absentees = packed.replicas[:], packed.absent[:]
    replicas_at = absent_at = 0
    columns = zip(
        packed.leaders,
        packed.leader_epochs,
        packed.replica_counts,
        packed.absent_counts,
        strict=True,
    )
    for leader, epoch, replica_count, absent_count in columns:
        replicas = isr = _ids(everyone[replicas_at : replicas_at + replica_count])
        replicas_at += replica_count
        if absent_count:
            absent = absentees[absent_at : absent_at + absent_count]
            absent_at += absent_count
            isr = _ids(replica for replica in replicas if replica not in absent)
        yield CachedPartition(BrokerId(leader), LeaderEpoch(epoch), replicas, isr)


def _ids(numbers: Iterable[int]) -> tuple[BrokerId, ...]:
    return interned(tuple(map(BrokerId, numbers)))
