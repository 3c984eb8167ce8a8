"""A Metadata answer of one version, made from what UpdateMetadata told."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.topics import INTERNAL_TOPICS
from broker.kafka import codec
from broker.kafka.codec import Message
from broker.kafka.metadata_partitions import PartitionEncoder
from broker.kafka.services import KafkaServices
from broker.told_metadata import endpoints_at
from metadata_log.types import NO_BROKER, TopicId
from quorate_proto.v1 import errors_pb2

_FIRST_VERSION_WITH_NULLABLE_NAME: Final = 12


class Operations(NamedTuple):
    """What the asker may do, where that was asked (KIP-430); None: it was not."""

    of_topic: Callable[[str], int] | None = None
    of_cluster: int | None = None


class MetadataAnswer:
    """Topics are described one by one, then encoded together."""

    def __init__(
        self,
        services: KafkaServices,
        version: int,
        listener: str,
        operations: Operations | None = None,
    ) -> None:
        """``listener``: by which the client came."""
        self._cluster_id = services.cluster_id
        self._metadata = services.metadata
        self._version = version
        self._operations = operations or Operations()
        self._endpoints = endpoints_at(services.metadata.brokers, listener)
        self._partitions = PartitionEncoder(version, self._endpoints)

    def by_name(self, name: str, errors: Mapping[str, int] = {}) -> Message:
        """``errors``: what is known about topics that don't exist."""
        topic = self._metadata.topics.get(name)
        if topic is None:
            code = errors.get(name, errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
            return {"error_code": code, "name": name, "topic_id": None, "partitions": ()}
        described: Message = {
            "error_code": errors_pb2.NONE,
            "name": name,
            "topic_id": UUID(bytes=topic.topic_id),
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": self._partitions.encode(topic.partitions),
        }
        if self._operations.of_topic is not None:
            described["topic_authorized_operations"] = self._operations.of_topic(name)
        return described

    def by_id(self, topic_id: UUID, may_see: Callable[[str], bool] = lambda _: True) -> Message:
        """``may_see``: whether the name may be told; the id itself is no secret."""
        name = self._metadata.topic_name(TopicId(topic_id.bytes))
        if name is not None and may_see(name):
            return self.by_name(name)
        return {
            "error_code": errors_pb2.UNKNOWN_TOPIC_ID
            if name is None
            else errors_pb2.TOPIC_AUTHORIZATION_FAILED,
            "name": None if self._version >= _FIRST_VERSION_WITH_NULLABLE_NAME else "",
            "topic_id": topic_id,
            "partitions": (),
        }

    def hidden(self, name: str) -> Message:
        """Of a topic that the asker may not see, whether there is one or not."""
        return {
            "error_code": errors_pb2.TOPIC_AUTHORIZATION_FAILED,
            "name": name,
            "topic_id": None,
            "partitions": (),
        }

    def encode(self, topics: list[Message]) -> bytes:
        brokers = self._metadata.brokers
        controller_id = self._metadata.controller_id
        told: Message = {}
        if self._operations.of_cluster is not None:
            told["cluster_authorized_operations"] = self._operations.of_cluster
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
                **told,
            },
        )
