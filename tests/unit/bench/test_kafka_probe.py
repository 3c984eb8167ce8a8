"""The probe speaks Kafka's wire by hand; kio, another codec, must agree."""

import io
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from bench._kafka_probe import (
    METADATA,
    METADATA_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    Replica,
    parse_leaders,
    parse_produced,
    produce_request,
)
from tests.support.kafka_wire import entity_of


def answer(key: int, version: int, values: dict[str, Any]) -> bytes:
    """A response body as another codec writes it."""
    schema = load_response_schema(key, version)
    out = io.BytesIO()
    entity_writer(schema)(out, entity_of(schema, values))
    return out.getvalue()


def test_leaders_are_read_by_partition_number_and_unknown_topics_left_out() -> None:
    def partition(number: int, leader: int) -> dict[str, Any]:
        return {
            "error_code": ErrorCode(0),
            "partition_index": number,
            "leader_id": leader,
            "replica_nodes": (1, 2, 3),
            "isr_nodes": (1, 2),
        }

    metadata = answer(
        METADATA,
        METADATA_VERSION,
        {
            "brokers": [
                {"node_id": 1, "host": "h", "port": 9092, "rack": None},
                {"node_id": 2, "host": "there", "port": 9092, "rack": "r"},
            ],
            "controller_id": 1,
            "topics": [
                {
                    "error_code": ErrorCode(3),
                    "name": "gone",
                    "is_internal": False,
                    "partitions": [],
                },
                {
                    "error_code": ErrorCode(0),
                    "name": "t",
                    "is_internal": False,
                    "partitions": [partition(1, 2), partition(0, -1)],
                },
            ],
        },
    )
    assert parse_leaders(metadata) == {"t": [-1, 2]}


def test_a_produce_request_has_one_record_for_each_replica() -> None:
    replicas = [Replica("t", 0), Replica("u", 7), Replica("t", 3)]
    schema = load_request_schema(PRODUCE, PRODUCE_VERSION)
    request: Any = entity_reader(schema)(produce_request(replicas, acks=-1), 0)[0]
    asked = [
        Replica(topic.name, partition.index)
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    assert sorted(asked) == sorted(replicas)
    assert request.acks == -1


def test_the_code_of_every_partition_is_read_from_a_produce_answer() -> None:
    def partition(number: int, code: int) -> dict[str, Any]:
        return {
            "index": number,
            "error_code": ErrorCode(code),
            "base_offset": 5,
            "log_append_time": None,
        }

    produced = answer(
        PRODUCE,
        PRODUCE_VERSION,
        {
            "responses": [
                {"name": "t", "partition_responses": [partition(0, 0), partition(3, 6)]},
                {"name": "u", "partition_responses": [partition(7, 3)]},
            ],
            "throttle_time": 0,
        },
    )
    assert list(parse_produced(produced)) == [
        (Replica("t", 0), 0),
        (Replica("t", 3), 6),
        (Replica("u", 7), 3),
    ]
