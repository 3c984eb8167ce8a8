"""The schema registry of a real cluster, asked by Confluent's own clients and serializers, before
and after the broker that decides is killed.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory

from quorate.client.results import NewTopic
from quorate.common.proto_files.proto_parser import parse_proto
from quorate.testing import RunningCluster, running_cluster

pytestmark = pytest.mark.integration

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_NOTE = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}],
}
JSON_ORDER = '{"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}'


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with running_cluster(brokers=3, config={"registry.listener": "http://127.0.0.1:0"}) as cluster:
        yield cluster


Registry: TypeAlias = Callable[[int], SchemaRegistryClient]
"""Returns a client that asks one broker."""


@pytest.fixture
def registry(cluster: RunningCluster) -> Iterator[Registry]:
    opened: list[SchemaRegistryClient] = []

    def opened_for(broker_id: int) -> SchemaRegistryClient:
        opened.append(SchemaRegistryClient({"url": cluster.registry_url(broker_id)}))
        return opened[-1]

    yield opened_for
    for one in opened:
        one._rest_client.session.close()


def leader(cluster: RunningCluster) -> int:
    """Return the broker that leads ``_schemas``."""
    with cluster.admin() as admin:
        (topic,) = admin.describe_topics(["_schemas"])
        return int(topic.partitions[0].leader)


def message_class(proto: str, name: str) -> Any:  # noqa: ANN401 - a class of messages
    """Return the class that protoc would make of a message."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(parse_proto("at.proto", proto).SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def sent_and_read(serializer: Any, deserializer: Any, value: object, topic: str) -> object:  # noqa: ANN401
    context = SerializationContext(topic, MessageField.VALUE)
    return deserializer(serializer(value, context), context)


def test_clients_keep_their_schemas_when_the_deciding_broker_is_killed(
    cluster: RunningCluster, registry: Registry
) -> None:
    first = registry(1)
    avro = AvroSerializer(first, json.dumps(ORDER))
    read = AvroDeserializer(registry(2))
    assert sent_and_read(avro, read, {"id": 5}, "orders") == {"id": 5}
    json_schema = JSONSerializer(JSON_ORDER, registry(3))
    as_json = JSONDeserializer(JSON_ORDER, schema_registry_client=first)
    assert sent_and_read(json_schema, as_json, {"id": 6}, "events") == {"id": 6}
    message = message_class('syntax = "proto3"; message At { int64 ms = 1; }', "At")
    options = {"use.deprecated.format": False}
    protobuf = ProtobufSerializer(message, registry(2), options)
    as_message = ProtobufDeserializer(message, options, registry(3))
    assert sent_and_read(protobuf, as_message, message(ms=7), "times") == message(ms=7)

    killed = leader(cluster)
    survivors = [one for one in cluster.broker_ids if one != killed]
    cluster.kill_broker(killed)

    # The broker that is asked waits for the next leader.
    other = registry(survivors[0])
    assert other.register_schema("orders-value", Schema(json.dumps(WITH_NOTE), "AVRO")) == 4
    for one in survivors:
        asked = registry(one)
        assert asked.get_versions("orders-value") == [1, 2]
        assert asked.get_subjects() == ["events-value", "orders-value", "times-value"]
        assert json.loads(str(asked.get_schema(1).schema_str)) == ORDER
        with pytest.raises(SchemaRegistryError) as raised:
            asked.register_schema("orders-value", Schema('"int"', "AVRO"))
        assert raised.value.http_status_code == 409
    assert audited(cluster, survivors[0], "RegisterSchema")[-2:] == ["NONE", "409"]
    assert records_of_schemas(cluster)[:3] == [
        ("orders-value", 1, 1, "AVRO"),
        ("events-value", 1, 2, "JSON"),
        ("times-value", 1, 3, "PROTOBUF"),
    ]


def test_a_topic_takes_only_records_whose_schema_is_known(
    cluster: RunningCluster, registry: Registry
) -> None:
    topic = NewTopic(
        name="orders",
        num_partitions=3,
        replication_factor=3,
        configs={"quorate.value.schema.validation": "true"},
    )
    with cluster.admin() as admin:
        (created,) = admin.create_topics([topic])
        created.raise_for_error()
    serialize = AvroSerializer(registry(1), json.dumps(ORDER))
    good = serialize({"id": 5}, SerializationContext("orders", MessageField.VALUE))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4"})
    failed: dict[bytes | None, str] = {}
    for partition in range(3):
        # Each partition has another leader, and only one of them leads the registry.
        for value in (good, b"{}", b"\0\0\0\0\x63"):
            producer.produce("orders", value, partition=partition, on_delivery=noted(failed))
            producer.flush(60)
    assert failed == {b"{}": "INVALID_RECORD", b"\0\0\0\0\x63": "INVALID_RECORD"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    ends = [consumer.get_watermark_offsets(TopicPartition("orders", n), 30)[1] for n in range(3)]
    consumer.close()
    assert ends == [1, 1, 1]


def noted(failed: dict[bytes | None, str]) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed[message.value()] = str(error.name())

    return note


def audited(cluster: RunningCluster, broker_id: int, api: str) -> list[str]:
    lines = (cluster.folder / f"broker-{broker_id}" / "audit.log").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return [one["result"] for one in entries if one["api"] == api]


def records_of_schemas(cluster: RunningCluster) -> list[tuple[str, int, int, str]]:
    """Read the topic as a consumer, and return what its records say of schemas."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["_schemas"])
    found = []
    while True:
        message = consumer.poll(10)
        assert message is not None, "the topic is not read to its end"
        if message.error():
            break
        value = json.loads(message.value() or b"")
        found.append(
            (value["subject"], value["version"], value["id"], value.get("schemaType", "AVRO"))
        )
    consumer.close()
    return found
