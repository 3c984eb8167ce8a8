"""The metadata cache: the cluster as UpdateMetadata described it to this broker, which its Kafka
clients see.

Clients learn leadership only from here, never from the watched image, so brokers and their clients
learn it from one source, in one order (C19). Topics arrive in packed columns and stay packed until
they are requested. A broker that serves few of 200,000 partitions unpacks few.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from quorate.common.types import (
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
from quorate.metadata_log.codec import decode_endpoint
from quorate.metadata_log.partitions import interned
from quorate_proto.v1.control_pb2 import PeerBroker, TopicMetadata, UpdateMetadataRequest

log = logging.getLogger(__name__)


RemovalWatcher = Callable[[Mapping[str, int]], None]
"""Receives, by topic, the number from which on the partitions of the topic were deleted.

Partitions with the same names may have been created again by then.
"""


class CachedBroker(msgspec.Struct, frozen=True, gc=False):
    """A live broker."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    kafka: Endpoint
    grpc: Endpoint
    rack: str
    listeners: Mapping[str, Endpoint]
    """The addresses for clients, by the name of the listener that they use."""


class CachedPartition(msgspec.Struct, frozen=True, gc=False):
    """The leadership of one partition. The leader is ``NO_BROKER`` if the partition is offline."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


class CachedTopic:
    """A topic. Its partitions are unpacked on first use, and kept."""

    __slots__ = ("_packed", "_partitions", "name", "topic_id")

    def __init__(self, packed: TopicMetadata) -> None:
        self.name = packed.topic
        self.topic_id = TopicId(packed.topic_id)
        self._packed: TopicMetadata | None = packed
        self._partitions: tuple[CachedPartition, ...] = ()

    @property
    def partition_count(self) -> int:
        """The number of partitions. They need not be unpacked for it."""
        return len(self._partitions if self._packed is None else self._packed.leaders)

    @property
    def partitions(self) -> tuple[CachedPartition, ...]:
        """The partitions in the order of their numbers, from 0."""
        if self._packed is not None:
            self._partitions = tuple(_unpacked(self._packed))
            self._packed = None
        return self._partitions


class MetadataCache:
    """Brokers, topics and the controller as of ``metadata_offset``, which is 0 before the first
    update.
    """

    def __init__(self) -> None:
        self.metadata_offset = MetadataOffset(0)
        self.controller_id = NO_BROKER
        self.brokers: Mapping[BrokerId, CachedBroker] = {}
        self._topics: dict[str, CachedTopic] = {}
        self._names: dict[TopicId, str] = {}
        self._removal_watchers: list[RemovalWatcher] = []

    @property
    def topics(self) -> Mapping[str, CachedTopic]:
        """All topics by name."""
        return self._topics

    def topic(self, name: str) -> CachedTopic | None:
        return self._topics.get(name)

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic, or 0 if there is no such topic."""
        topic = self._topics.get(name)
        return 0 if topic is None else topic.partition_count

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic with that id, or None if there is none."""
        return self._names.get(topic_id)

    def partition(self, tp: TopicPartition) -> CachedPartition | None:
        topic = self._topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> BrokerId:
        """Return the leader of ``tp``, or ``NO_BROKER`` if it has none or is not known."""
        partition = self.partition(tp)
        return NO_BROKER if partition is None else partition.leader

    def watch_removals(self, watcher: RemovalWatcher) -> None:
        """Call ``watcher`` after each update in which partitions were deleted."""
        self._removal_watchers.append(watcher)

    def update(self, request: UpdateMetadataRequest) -> None:
        """Apply a request that was fenced before. It has the whole cluster, or what has changed."""
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
            for watcher in self._removal_watchers:
                watcher(gone)

    def _gone(self, request: UpdateMetadataRequest) -> dict[str, int]:
        """Return the topics that have fewer partitions than before, each with the number kept."""
        received = {packed.topic: packed for packed in request.topics}
        gone: dict[str, int] = {}
        for name in self._topics if request.full else {*request.removed_topics, *received}:
            known, now = self._topics.get(name), received.get(name)
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


def endpoints_at(
    brokers: Mapping[BrokerId, CachedBroker], listener: str
) -> dict[BrokerId, Endpoint]:
    """Return the addresses of the brokers for clients of ``listener``.

    Brokers without that listener are left out, because another listener may not be protected as
    these clients require.
    """
    return {
        broker_id: broker.listeners[listener]
        for broker_id, broker in brokers.items()
        if listener in broker.listeners
    }


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
