"""Metadata (3) on the wire: a response in any version, built from the metadata cache.

The partitions are encoded by hand, because there may be very many of them. A cluster has few
distinct replica lists, so each list is encoded once per response and looked up afterwards.
"""

import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from quorate.broker.common.steps import Steps
from quorate.broker.common.topic_names import fault_of_name
from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire import codec, stepwise
from quorate.broker.kafka.wire.codec import Encoded, Message
from quorate.broker.kafka.wire.primitives import append_length
from quorate.broker.metadata.metadata_cache import endpoints_at
from quorate.broker.metadata.packed_topics import KnownPartition, offline_replicas
from quorate.common.types import NO_BROKER, BrokerId, TopicId
from quorate_proto.v1 import errors_pb2

_PARTITIONS_IN_A_STEP: Final = 256


class AuthorizedOperations(NamedTuple):
    """The operations that the client may perform (KIP-430). A field is None if the client did
    not request it.
    """

    of_topic: Callable[[str], int] | None = None
    of_cluster: int | None = None


class MetadataResponseBuilder:
    """Builds the response to one Metadata request. Topics are described one by one, then encoded
    together.
    """

    def __init__(
        self,
        services: KafkaServices,
        version: int,
        listener: str,
        operations: AuthorizedOperations | None = None,
    ) -> None:
        """``listener`` is the listener that the client used."""
        self._cluster_id = services.cluster_id
        self._metadata = services.metadata
        self._version = version
        self._flexible = version >= _FIRST_FLEXIBLE_VERSION
        self._operations = operations or AuthorizedOperations()
        self._endpoints = endpoints_at(services.metadata.brokers, listener)
        self._partitions = PartitionEncoder(version, self._endpoints)

    def by_name(self, name: str, errors: Mapping[str, int] = {}) -> Steps[Message]:
        """Describe a topic by name, in steps. ``errors`` contains error codes for topics that do
        not exist.
        """
        topic = self._metadata.topics.get(name)
        if topic is None:
            code = errors.get(name) or _code_of_unknown(name)
            return {"error_code": code, "name": name, "topic_id": None, "partitions": ()}
        described: Message = {
            "error_code": errors_pb2.NONE,
            "name": name,
            "topic_id": UUID(bytes=topic.topic_id),
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": (yield from self._partitions.encode(topic.partitions)),
        }
        if self._operations.of_topic is not None:
            described["topic_authorized_operations"] = self._operations.of_topic(name)
        return described

    def by_id(
        self, topic_id: UUID, may_see: Callable[[str], bool] = lambda _: True
    ) -> Steps[Message]:
        """Describe a topic by id, in steps, from version 12 on. ``may_see`` returns whether the
        client may see the name; the id itself is not secret.
        """
        name = self._metadata.topic_name(TopicId(topic_id.bytes))
        if name is not None and may_see(name):
            return (yield from self.by_name(name))
        return {
            "error_code": errors_pb2.UNKNOWN_TOPIC_ID
            if name is None
            else errors_pb2.TOPIC_AUTHORIZATION_FAILED,
            "name": None,
            "topic_id": topic_id,
            "partitions": (),
        }

    def hidden(self, name: str) -> Steps[Message]:
        """Describe a topic that the client may not see. The description does not reveal whether
        the topic exists.
        """
        yield from ()
        return {
            "error_code": errors_pb2.TOPIC_AUTHORIZATION_FAILED,
            "name": name,
            "topic_id": None,
            "partitions": (),
        }

    def encode(self, topics: Iterable[Steps[Message]]) -> Steps[bytes]:
        """Return the response with topics that are described one by one, in steps."""
        append = stepwise.element_encoder("metadata", self._version, "topics")
        count, encoded = 0, bytearray()
        for topic in topics:
            append(encoded, (yield from topic))
            count += 1
            yield
        return self._encode(Encoded(stepwise.array_of(count, encoded, self._flexible)))

    def _encode(self, topics: Encoded) -> bytes:
        brokers = self._metadata.brokers
        controller_id = self._metadata.controller_id
        cluster_operations: Message = {}
        if self._operations.of_cluster is not None:
            cluster_operations["cluster_authorized_operations"] = self._operations.of_cluster
        return codec.encode_response(
            "metadata",
            self._version,
            {
                "throttle_time": 0,
                "brokers": [
                    {
                        "node_id": broker_id,
                        "host": endpoint.host,
                        "port": endpoint.port,
                        "rack": brokers[broker_id].rack or None,
                    }
                    for broker_id, endpoint in self._endpoints.items()
                ],
                "cluster_id": self._cluster_id,
                "controller_id": controller_id if controller_id in self._endpoints else NO_BROKER,
                "topics": topics,
                "error_code": errors_pb2.NONE,
                **cluster_operations,
            },
        )


_FIRST_FLEXIBLE_VERSION: Final = 9
_FIRST_VERSION_WITH_LEADER_EPOCH: Final = 7
_FIRST_VERSION_WITH_OFFLINE_REPLICAS: Final = 5

_CODE_INDEX_LEADER: Final = struct.Struct(">hii")
_CODE_INDEX_LEADER_EPOCH: Final = struct.Struct(">hiii")
_INT32: Final = struct.Struct(">i")


class PartitionEncoder:
    """Encodes partitions for one response, which has one version of Metadata and one set of live
    brokers.
    """

    def __init__(self, version: int, live: Container[BrokerId]) -> None:
        self._live = live
        self._flexible = version >= _FIRST_FLEXIBLE_VERSION
        self._with_epoch = version >= _FIRST_VERSION_WITH_LEADER_EPOCH
        self._with_offline = version >= _FIRST_VERSION_WITH_OFFLINE_REPLICAS
        self._tags = b"\0" if self._flexible else b""
        self._ids: dict[tuple[BrokerId, ...], bytes] = {}
        self._offline: dict[tuple[BrokerId, ...], bytes] = {}

    def encode(self, partitions: Sequence[KnownPartition]) -> Steps[Encoded]:
        """Encode the array of a topic's partitions, in the order of their numbers, in steps."""
        out = bytearray(self._length(len(partitions)))
        for index, partition in enumerate(partitions):
            self._append(out, index, partition)
            if not (index + 1) % _PARTITIONS_IN_A_STEP:
                yield
        return Encoded(out)

    def _append(self, out: bytearray, index: int, partition: KnownPartition) -> None:
        leader = partition.leader
        code = errors_pb2.NONE
        if leader not in self._live:
            leader, code = NO_BROKER, errors_pb2.LEADER_NOT_AVAILABLE
        if self._with_epoch:
            out += _CODE_INDEX_LEADER_EPOCH.pack(code, index, leader, partition.leader_epoch)
        else:
            out += _CODE_INDEX_LEADER.pack(code, index, leader)
        replicas = partition.replicas
        out += self._ids.get(replicas) or self._encode_ids(replicas)
        out += self._ids.get(partition.isr) or self._encode_ids(partition.isr)
        if self._with_offline:
            out += self._encoded_offline(partition)
        out += self._tags

    def _encode_ids(self, ids: tuple[BrokerId, ...]) -> bytes:
        encoded = self._length(len(ids)) + b"".join(map(_INT32.pack, ids))
        self._ids[ids] = encoded
        return encoded

    def _encoded_offline(self, partition: KnownPartition) -> bytes:
        if partition.leader == NO_BROKER:
            return self._encode_ids(offline_replicas(partition, self._live))
        encoded = self._offline.get(partition.replicas)
        if encoded is None:
            encoded = self._encode_ids(offline_replicas(partition, self._live))
            self._offline[partition.replicas] = encoded
        return encoded

    def _length(self, length: int) -> bytes:
        out = bytearray()
        append_length(out, length, self._flexible)
        return bytes(out)


def _code_of_unknown(name: str) -> int:
    """Return the error code for a topic that does not exist. A client that asks for a name that no
    topic can have gives up at once, instead of waiting for the topic."""
    if fault_of_name(name) is None:
        return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    return errors_pb2.INVALID_TOPIC_EXCEPTION
