"""The metadata cache: the cluster as this broker's Kafka clients see it.

Clients learn leadership only from here, so they learn it from one source, in one order (C19). Below
inter_broker_protocol 3 the content comes with UpdateMetadata requests, in packed columns. From that
level on the cache shows the broker's own image of the metadata log, and the controller only asks
how far it is. The cache then holds nothing of its own beside the mapping of brokers.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from quorate.broker.metadata.packed_topics import KnownPartition, KnownTopic, PackedTopic
from quorate.common.types import (
    DEFAULT_LISTENER,
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    Endpoint,
    MetadataOffset,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.codec import decode_endpoint
from quorate.metadata_log.image import Broker, Image
from quorate_proto.v1.control_pb2 import PeerBroker, UpdateMetadataRequest

log = logging.getLogger(__name__)


RemovalWatcher = Callable[[Mapping[str, int]], None]
"""Receives, by topic, the number from which on the partitions of the topic were deleted.

Partitions with the same names may have been created again by then.
"""


TopicWatcher = Callable[[Collection[str]], None]
"""Receives the topics that were created, deleted, or have another number of partitions."""


class CachedBroker(msgspec.Struct, frozen=True, gc=False):
    """A live broker."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    kafka: Endpoint
    grpc: Endpoint
    rack: str
    listeners: Mapping[str, Endpoint]
    """The addresses for clients, by the name of the listener that they use."""


class MetadataCache:
    """Brokers, topics and the controller as of ``metadata_offset``, which is 0 before the first
    update.
    """

    def __init__(self) -> None:
        self.metadata_offset = MetadataOffset(0)
        self.controller_id = NO_BROKER
        self.brokers: Mapping[BrokerId, CachedBroker] = {}
        self._topics: Mapping[str, KnownTopic] = {}
        self._names: Mapping[TopicId, str] = {}
        self._image: Image | None = None
        """The image that is shown, or None if the content came with requests."""
        self._is_known = asyncio.Event()
        self._removal_watchers: list[RemovalWatcher] = []
        self._topic_watchers: list[TopicWatcher] = []

    @property
    def topics(self) -> Mapping[str, KnownTopic]:
        """All topics by name."""
        return self._topics

    def topic(self, name: str) -> KnownTopic | None:
        return self._topics.get(name)

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic, or 0 if there is no such topic."""
        topic = self._topics.get(name)
        return 0 if topic is None else topic.partition_count

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Return the name of the topic with that id, or None if there is none."""
        return self._names.get(topic_id)

    def partition(self, tp: TopicPartition) -> KnownPartition | None:
        topic = self._topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> BrokerId:
        """Return the leader of ``tp``, or ``NO_BROKER`` if it has none or is not known."""
        partition = self.partition(tp)
        return NO_BROKER if partition is None else partition.leader

    async def until_known(self) -> None:
        """Return once the cluster is known. Before the first update a topic that is not here may
        well exist."""
        await self._is_known.wait()

    def watch_removals(self, watcher: RemovalWatcher) -> None:
        """Call ``watcher`` after each update in which partitions were deleted."""
        self._removal_watchers.append(watcher)

    def watch_topics(self, watcher: TopicWatcher) -> None:
        """Call ``watcher`` after each update in which topics were created, deleted or resized."""
        self._topic_watchers.append(watcher)

    def update(self, request: UpdateMetadataRequest) -> None:
        """Apply a request that was fenced before. It has the whole cluster, or what has changed."""
        known, received = self._topics, {packed.topic: packed for packed in request.topics}
        topics = {} if request.full else dict(known)
        names = {} if request.full else dict(self._names)
        for name in (*request.removed_topics, *received):
            former = topics.pop(name, None)
            if former is not None:
                del names[former.topic_id]
        for packed in request.topics:
            topic = PackedTopic(packed)
            topics[topic.name] = topic
            names[topic.topic_id] = topic.name
        self._topics, self._names, self._image = topics, names, None
        self.brokers = {broker.broker_id: broker for broker in map(_sent_broker, request.brokers)}
        self.controller_id = BrokerId(request.header.controller_id)
        self.metadata_offset = MetadataOffset(request.header.metadata_offset)
        self._report_changes(
            known, {*known, *topics} if request.full else {*request.removed_topics, *received}
        )

    def show(self, image: Image, changed: Iterable[str]) -> None:
        """Show ``image`` from now on. ``changed`` are the topics that differ from the image before.

        The controller stays as it was while there is none.
        """
        known, before = self._topics, self._image
        self._topics, self._names, self._image = image.topics, image.topic_names, image
        if before is not None and before.brokers is image.brokers:
            self.brokers = dict(self.brokers)  # Another mapping shows that something has changed.
        else:
            self.brokers = {
                one.broker_id: _registered_broker(one) for one in image.brokers.values()
            }
        if image.controller is not None:
            self.controller_id = image.controller_id
        self.metadata_offset = image.offset
        self._report_changes(known, {*known, *self._topics} if before is None else changed)

    def _report_changes(self, before: Mapping[str, KnownTopic], names: Iterable[str]) -> None:
        """Tell those who wait, and the watchers which of the topics in ``names`` have other
        partitions than before."""
        self._is_known.set()
        gone: dict[str, int] = {}
        changed: list[str] = []
        for name in names:
            known, now = before.get(name), self._topics.get(name)
            if _shape(known) != _shape(now):
                changed.append(name)
            if known is None:
                continue
            is_same = now is not None and now.topic_id == known.topic_id
            left = now.partition_count if now is not None and is_same else 0
            if left < known.partition_count:
                gone[name] = left
        if gone:
            for watcher in self._removal_watchers:
                watcher(gone)
        if changed:
            for topic_watcher in self._topic_watchers:
                topic_watcher(changed)


def _shape(topic: KnownTopic | None) -> tuple[TopicId, int] | None:
    return None if topic is None else (topic.topic_id, topic.partition_count)


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


def _registered_broker(broker: Broker) -> CachedBroker:
    named = {one.name: one.endpoint for one in broker.registration.listeners}
    return CachedBroker(
        broker_id=broker.broker_id,
        epoch=broker.epoch,
        kafka=broker.kafka,
        grpc=broker.grpc,
        rack=broker.registration.rack,
        listeners=named or {DEFAULT_LISTENER: broker.kafka},
    )


def _sent_broker(message: PeerBroker) -> CachedBroker:
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
