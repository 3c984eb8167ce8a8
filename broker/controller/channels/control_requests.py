"""Builds control requests as bytes, each from one image and each serialized once (B1).

``max_broker_epoch`` and ``metadata_offset`` of a request come from the image that its content comes
from. A request that has to be sent again is built again, from a newer image. Its header is never
replaced alone.

UpdateMetadata is the same for all brokers. Its topics are packed frames, cached by the identity of
the topic's partitions. Concatenated protobuf messages merge their repeated fields, so a request for
200,000 partitions is a join of bytes that exist already.

From inter_broker_protocol 3 on the brokers take all metadata, and the content of an INIT, from the
metadata log. These two requests then say only how far the receiver must have followed it.

At level 1 a request names its receiver's broker epoch, not the newest one, so there is a copy for
each receiver (B4). By the same merging, the epoch is appended to the shared bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import immutables

from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.common.types import BrokerId, MetadataOffset, TopicId, TopicIdPartition
from quorate.metadata_log.codec import encode_endpoint, encode_listener
from quorate.metadata_log.features import CACHEABLE_CONTROL_REQUESTS
from quorate.metadata_log.image import Broker, Image
from quorate.metadata_log.partitions import Partition, Reassignment, Topic
from quorate_proto.v1 import control_pb2

LEADER_AND_ISR_KEY: Final = 4
STOP_REPLICA_KEY: Final = 5
UPDATE_METADATA_KEY: Final = 6

_VERSIONS: Final = {LEADER_AND_ISR_KEY: 5, STOP_REPLICA_KEY: 4, UPDATE_METADATA_KEY: 7}
"""Kafka's version numbers for the requests that carry max_broker_epoch (B1). One less is the
version before, one more the one whose content is in the metadata log."""

UNUSED_EPOCH: Final = -1

DELETION_EPOCH: Final = -2
"""The leader epoch of a StopReplica that deletes the topic. It overrules every leader epoch
(C8)."""

SHARED_MAX: Final = 8
"""The number of LeaderAndIsr requests that are kept for other receivers of the same request. Each
of them uses memory."""

Selection = Mapping[TopicId, tuple[int, ...]]
"""Partition numbers by topic id."""


class EncodedControlRequest(NamedTuple):
    """An encoded request, and the image it was made from."""

    body: bytes
    metadata_offset: MetadataOffset
    names_receiver: bool = False
    """Whether the request still lacks its receiver's broker epoch, see ``addressed``."""


def addressed(request: EncodedControlRequest, receiver: Broker) -> bytes:
    """Return the bytes to send: the shared ones, or at level 1 a copy with ``receiver``'s epoch.

    The later bytes of a message are merged into the earlier ones, and the header is field 1 of
    every control request.
    """
    if not request.names_receiver:
        return request.body
    header = control_pb2.ControlHeader(broker_epoch=receiver.epoch)
    return request.body + control_pb2.LeaderAndIsrRequest(header=header).SerializeToString()


class StoppedReplica(NamedTuple):
    """One replica to stop. The name is kept because the topic may be deleted when the request is
    sent."""

    topic: str
    tip: TopicIdPartition
    leader_epoch: int = DELETION_EPOCH
    delete_data: bool = True


class ControlRequestBuilder:
    """Builds the requests of one controller in one epoch."""

    def __init__(self, tenure: ControllerTenure, ack_timeout_ms: int) -> None:
        self._tenure = tenure
        self._ack_timeout_ms = ack_timeout_ms
        self._frames: dict[str, tuple[Sequence[Partition], bytes]] = {}
        self._full: EncodedControlRequest | None = None
        self._updates_offset = MetadataOffset(-1)
        self._updates: dict[frozenset[str], EncodedControlRequest] = {}
        self._leadership_offset = MetadataOffset(-1)
        self._leadership: dict[tuple[bool, frozenset[tuple[TopicId, tuple[int, ...]]]], bytes] = {}

    def init_from_log(self, image: Image) -> EncodedControlRequest:
        """Encode an INIT whose content is each receiver's own image, at this offset or later."""
        request = control_pb2.LeaderAndIsrRequest(
            header=self._header(image, LEADER_AND_ISR_KEY, from_log=True),
            is_init=True,
            from_log=True,
        )
        return _encoded(request.SerializeToString(), image)

    def metadata_from_log(self, image: Image) -> EncodedControlRequest:
        """Encode an UpdateMetadata whose content is each receiver's own image, likewise."""
        request = control_pb2.UpdateMetadataRequest(
            header=self._header(image, UPDATE_METADATA_KEY, from_log=True), from_log=True
        )
        return _encoded(request.SerializeToString(), image)

    def leader_and_isr(
        self, image: Image, selection: Selection, *, is_init: bool
    ) -> EncodedControlRequest:
        """Encode the leadership of partitions. Equal requests from one image share their bytes.

        Partitions that ``image`` lacks or that are about to be deleted are left out. Brokers
        receive StopReplica for those.
        """
        if image.offset != self._leadership_offset:
            self._leadership_offset = image.offset
            self._leadership.clear()
        key = (is_init, frozenset(selection.items()))
        body = self._leadership.get(key)
        if body is None:
            body = self._leadership[key] = self._leader_and_isr(image, selection, is_init)
            if len(self._leadership) > SHARED_MAX:
                del self._leadership[next(iter(self._leadership))]
        return _encoded(body, image)

    def _leader_and_isr(self, image: Image, selection: Selection, is_init: bool) -> bytes:
        request = control_pb2.LeaderAndIsrRequest(
            header=self._header(image, LEADER_AND_ISR_KEY), is_init=is_init
        )
        leaders: set[BrokerId] = set()
        for topic_id, numbers in selection.items():
            topic = image.topic_by_id(topic_id)
            if topic is None:
                continue
            kept = image.kept(topic)
            known = [number for number in numbers if number < kept]
            if not known:
                continue
            request.topics.append(_topic_leadership(image, topic, known))
            leaders.update(topic.partitions[number].leader for number in known)
        request.brokers.extend(_peers(image, leaders))
        return request.SerializeToString()

    def stop_replica(self, image: Image, stops: Iterable[StoppedReplica]) -> EncodedControlRequest:
        """Encode the replicas that the receiver is to stop."""
        request = control_pb2.StopReplicaRequest(
            header=self._header(image, STOP_REPLICA_KEY),
            partitions=[
                control_pb2.StoppedPartition(
                    topic=stop.topic,
                    topic_id=stop.tip.topic_id,
                    partition=stop.tip.partition,
                    leader_epoch=stop.leader_epoch,
                    delete_data=stop.delete_data,
                )
                for stop in stops
            ],
        )
        return _encoded(request.SerializeToString(), image)

    def update_metadata(self, image: Image, changed: frozenset[str]) -> EncodedControlRequest:
        """Encode the client metadata of the ``changed`` topics, including deleted ones.

        Brokers that lack the same changes receive the same bytes.
        """
        if image.offset != self._updates_offset:
            self._updates_offset = image.offset
            self._updates.clear()
        update = self._updates.get(changed)
        if update is None:
            update = self._updates[changed] = self._update_metadata(image, sorted(changed))
        return update

    def _update_metadata(self, image: Image, changed: Iterable[str]) -> EncodedControlRequest:
        present = [name for name in changed if name in image.topics]
        removed = [name for name in changed if name not in image.topics]
        head = control_pb2.UpdateMetadataRequest(
            header=self._header(image, UPDATE_METADATA_KEY),
            brokers=_peers(image, image.brokers),
            removed_topics=removed,
        )
        return self._joined(image, head, present)

    def forget(self, topics: Iterable[str]) -> None:
        """Remove the cached frames of deleted topics."""
        for name in topics:
            self._frames.pop(name, None)

    def full_metadata(self, image: Image) -> EncodedControlRequest:
        """Encode all client metadata. The brokers that need it share one copy."""
        if self._full is None or self._full.metadata_offset != image.offset:
            head = control_pb2.UpdateMetadataRequest(
                header=self._header(image, UPDATE_METADATA_KEY),
                full=True,
                brokers=_peers(image, image.brokers),
            )
            self._full = self._joined(image, head, image.topics)
        return self._full

    def _joined(
        self, image: Image, head: control_pb2.UpdateMetadataRequest, topics: Iterable[str]
    ) -> EncodedControlRequest:
        frames = [self._frame(image.topics[name]) for name in topics]
        return _encoded(b"".join([head.SerializeToString(), *frames]), image)

    def _frame(self, topic: Topic) -> bytes:
        cached = self._frames.get(topic.name)
        if cached is not None and cached[0] is topic.partitions:
            return cached[1]
        packed = control_pb2.UpdateMetadataRequest(topics=[_packed(topic)]).SerializeToString()
        self._frames[topic.name] = (topic.partitions, packed)
        return packed

    def _header(
        self, image: Image, kind: int, *, from_log: bool = False
    ) -> control_pb2.ControlHeader:
        names_receiver = _names_receiver(image)
        return control_pb2.ControlHeader(
            type=kind,
            version=_VERSIONS[kind] - names_receiver + from_log,
            controller_id=self._tenure.controller_id,
            controller_epoch=self._tenure.controller_epoch,
            max_broker_epoch=UNUSED_EPOCH if names_receiver else image.max_broker_epoch,
            broker_epoch=UNUSED_EPOCH,
            metadata_offset=image.offset,
            ack_timeout_ms=self._ack_timeout_ms,
        )


def _encoded(body: bytes, image: Image) -> EncodedControlRequest:
    return EncodedControlRequest(body, image.offset, _names_receiver(image))


def _names_receiver(image: Image) -> bool:
    return image.inter_broker_protocol < CACHEABLE_CONTROL_REQUESTS


def hosted_by(image: Image, broker_id: BrokerId) -> dict[TopicId, tuple[int, ...]]:
    """Return all partitions of a broker, except those that are being deleted or removed."""
    hosted = {}
    for topic in image.topics.values():
        numbers = tuple(
            number
            for number, partition in enumerate(topic.partitions[: image.kept(topic)])
            if broker_id in partition.replicas
        )
        if numbers:
            hosted[topic.topic_id] = numbers
    return hosted


def leaving(image: Image, names: Iterable[str]) -> dict[BrokerId, list[StoppedReplica]]:
    """Return each broker's replicas of the deleted topics and removed partitions in ``names`` (C5,
    C14).

    A removed partition may be added again, in a later leader epoch, which this stop must not
    affect.
    """
    stops: dict[BrokerId, list[StoppedReplica]] = {}
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            continue
        is_deleted = name in image.deletions
        for number in range(image.kept(topic), len(topic.partitions)):
            partition = topic.partitions[number]
            epoch = DELETION_EPOCH if is_deleted else partition.leader_epoch
            tip = TopicIdPartition(topic.topic_id, number)
            stop = StoppedReplica(name, tip, leader_epoch=epoch)
            for broker_id in partition.replicas:
                stops.setdefault(broker_id, []).append(stop)
    return stops


def assigned_among(
    image: Image, broker_id: BrokerId, tips: Iterable[TopicIdPartition]
) -> dict[TopicId, tuple[int, ...]]:
    """Return the partitions in ``tips`` that are still assigned to a broker. Others may have moved
    away since (B1)."""
    numbers: dict[TopicId, list[int]] = {}
    for tip in tips:
        numbers.setdefault(tip.topic_id, []).append(tip.partition)
    assigned = {}
    for topic_id, named in numbers.items():
        topic = image.topic_by_id(topic_id)
        leaves = () if topic is None else topic.partitions[: image.kept(topic)]
        own = tuple(n for n in sorted(named) if n < len(leaves) and broker_id in leaves[n].replicas)
        if own:
            assigned[topic_id] = own
    return assigned


def _topic_leadership(
    image: Image, topic: Topic, numbers: Iterable[int]
) -> control_pb2.TopicLeadership:
    pending = image.reassignments.get(topic.name, immutables.Map())
    return control_pb2.TopicLeadership(
        topic=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _leadership(
                number,
                topic.partitions[number],
                pending.get(number),
                removed_at=topic.removed_at(number) if topic.removals else 0,
            )
            for number in numbers
        ],
    )


def _leadership(
    number: int, partition: Partition, pending: Reassignment | None, removed_at: int
) -> control_pb2.PartitionLeadership:
    return control_pb2.PartitionLeadership(
        partition=number,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        record_version=partition.version,
        replicas=partition.replicas,
        adding_replicas=() if pending is None else pending.adding,
        removed_at=removed_at,
    )


def _packed(topic: Topic) -> control_pb2.TopicMetadata:
    leaves = topic.partitions
    return control_pb2.TopicMetadata(
        topic=topic.name,
        topic_id=topic.topic_id,
        leaders=[leaf.leader for leaf in leaves],
        leader_epochs=[leaf.leader_epoch for leaf in leaves],
        replica_counts=[len(leaf.replicas) for leaf in leaves],
        replicas=[replica for leaf in leaves for replica in leaf.replicas],
        absent_counts=[len(leaf.replicas) - len(leaf.isr) for leaf in leaves],
        absent=[
            replica
            for leaf in leaves
            if len(leaf.isr) < len(leaf.replicas)
            for replica in leaf.replicas
            if replica not in leaf.isr
        ],
    )


def _peers(image: Image, broker_ids: Iterable[BrokerId]) -> list[control_pb2.PeerBroker]:
    return [_peer(image.brokers[one]) for one in sorted(broker_ids) if one in image.brokers]


def _peer(broker: Broker) -> control_pb2.PeerBroker:
    return control_pb2.PeerBroker(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        kafka=encode_endpoint(broker.kafka),
        grpc=encode_endpoint(broker.grpc),
        rack=broker.registration.rack,
        inter_broker=encode_endpoint(broker.inter_broker),
        listeners=map(encode_listener, broker.registration.listeners),
    )
