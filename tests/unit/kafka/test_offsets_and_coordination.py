"""ListOffsets, OffsetForLeaderEpoch, DescribeCluster, InitProducerId and the search for groups."""

import dataclasses

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession
from quorate.broker.kafka.metadata.describe_cluster_api import GRPC_ENDPOINT_TAG
from quorate.broker.kafka.wire.primitives import append_uvarint
from quorate.broker.replication.api import OffsetOutcome, ProduceEntry
from quorate.common.types import NO_BROKER, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside, FakeProducerIds
from tests.support.kafka_wire import Values, record_batch, request_frame
from tests.unit.kafka.conftest import Ask

LIST_OFFSETS, FIND_COORDINATOR, INIT_PRODUCER_ID = 2, 10, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CLUSTER = 23, 60
T0 = TopicPartition("t", 0)


@pytest.fixture
async def three_records(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t")
    batch = memoryview(bytearray(record_batch(3, timestamp_ms=1000)))
    await inside.replicas.produce([ProduceEntry(T0, batch)], 1, 0)


@pytest.mark.usefixtures("three_records")
@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("timestamp_ms", "offset", "found_ms"),
    [(-1, 3, -1), (-2, 0, -1), (1001, 0, 1002), (5000, -1, -1)],
)
async def test_earliest_latest_and_by_timestamp(
    ask: Ask, version: int, timestamp_ms: int, offset: int, found_ms: int
) -> None:
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp_ms}
        for index in (0, 9)
    ]
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 1000,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    (topic,) = (await ask(LIST_OFFSETS, version, values)).topics
    known, unknown = topic.partitions
    assert (known.error_code, known.offset, known.timestamp) == (0, offset, found_ms)
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.usefixtures("three_records")
@pytest.mark.parametrize(
    ("version", "code"),
    [(4, errors_pb2.LEADER_NOT_AVAILABLE), (5, errors_pb2.OFFSET_NOT_AVAILABLE)],
)
async def test_a_leader_that_needs_a_moment_says_so_in_words_the_client_knows(
    inside: FakeBrokerInside, ask: Ask, version: int, code: int
) -> None:
    outcome = OffsetOutcome(errors_pb2.OFFSET_NOT_AVAILABLE)
    inside.replicas.list_offset = lambda *_: outcome  # type: ignore[method-assign]
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 1000,
        "topics": [{"name": "t", "partitions": [partition]}],
    }
    (topic,) = (await ask(LIST_OFFSETS, version, values)).topics
    assert topic.partitions[0].error_code == code


@pytest.mark.usefixtures("three_records")
@pytest.mark.parametrize(
    ("timestamp_ms", "first_version", "offset", "found_ms"),
    [(-3, 7, 0, 1002), (-4, 8, 0, -1), (-5, 9, -1, -1), (-6, 11, -1, -1), (-7, 99, -1, -1)],
)
@pytest.mark.parametrize("version", range(1, 12))
async def test_kip_734_405_1005_1023_special_timestamps_from_their_versions_on(
    ask: Ask, version: int, timestamp_ms: int, first_version: int, offset: int, found_ms: int
) -> None:
    """The greatest timestamp, the local log start offset, and the end of remote storage."""
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 1000,
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": index, "timestamp": timestamp_ms} for index in (0, 9)
                ],
            }
        ],
    }
    (topic,) = (await ask(LIST_OFFSETS, version, values)).topics
    known, unknown = topic.partitions
    if version < first_version:
        assert known.error_code == unknown.error_code == errors_pb2.UNSUPPORTED_VERSION
        assert (known.offset, known.timestamp) == (-1, -1)
    else:
        assert (known.error_code, known.offset, known.timestamp) == (0, offset, found_ms)
        assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.usefixtures("three_records")
@pytest.mark.parametrize("version", range(2, 5))
async def test_end_of_a_leader_epoch(ask: Ask, version: int) -> None:
    partitions = [
        {"partition": index, "current_leader_epoch": -1, "leader_epoch": 0} for index in (0, 9)
    ]
    values = {"replica_id": -1, "topics": [{"topic": "t", "partitions": partitions}]}
    (topic,) = (await ask(OFFSET_FOR_LEADER_EPOCH, version, values)).topics
    known, unknown = topic.partitions
    assert (known.partition, known.leader_epoch, known.end_offset) == (0, 0, 3)
    assert unknown.error_code == errors_pb2.UNKNOWN_TOPIC_OR_PARTITION


async def cluster_answer(inside: FakeBrokerInside, version: int, values: Values) -> bytes:
    frame = memoryview(bytearray(request_frame(DESCRIBE_CLUSTER, version, values)))
    (body,) = (
        await RequestDispatcher(inside.services, api_table())
        .decode(frame, ClientSession("h"))
        .run()
    )
    return bytes(body)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_describe_cluster_names_each_brokers_grpc_endpoint_in_a_tag(
    inside: FakeBrokerInside, version: int
) -> None:
    values = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 1,
        "include_fenced_brokers": True,
    }
    body = await cluster_answer(inside, version, values)
    tag = bytearray(b"\x01")
    append_uvarint(tag, GRPC_ENDPOINT_TAG)
    tag += b"\x0e127.0.0.1:9192"
    broker = b"\0\0\0\x01\x0a127.0.0.1\0\0\x23\x84\x03r1"
    broker += b"\0" * (version == 2) + tag
    endpoint_type = b"\x01" if version else b""
    expected = bytes(4) + b"\0\0" + b"\0" + endpoint_type + b"\x0dtest-cluster" + b"\0\0\0\x01"
    assert body == expected + b"\x02" + broker + b"\x80\0\0\0" + b"\0"


async def test_describe_cluster_has_no_kraft_controllers_to_show(ask: Ask) -> None:
    values = {
        "include_cluster_authorized_operations": False,
        "endpoint_type": 2,
        "include_fenced_brokers": True,
    }
    response = await ask(DESCRIBE_CLUSTER, 1, values)
    assert response.error_code == errors_pb2.INVALID_REQUEST
    assert "endpoint type 2" in response.error_message


@pytest.mark.parametrize("version", range(5))
async def test_producer_ids_differ(ask: Ask, version: int) -> None:
    values = {"transactional_id": None, "transaction_timeout": 1000}
    first = await ask(INIT_PRODUCER_ID, version, values)
    second = await ask(INIT_PRODUCER_ID, version, values)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize("version", [3, 4])
async def test_kip_360_who_has_an_id_gets_another_one(ask: Ask, version: int) -> None:
    """Otherwise the next epoch of its id could be given to two producers."""
    values = {"transactional_id": None, "transaction_timeout": 1000}
    first = await ask(INIT_PRODUCER_ID, version, values)
    values |= {"producer_id": first.producer_id, "producer_epoch": 4}
    second = await ask(INIT_PRODUCER_ID, version, values)
    assert (second.error_code, second.producer_epoch) == (0, 0)
    assert second.producer_id != first.producer_id


@pytest.mark.parametrize("half", [{"producer_id": 7}, {"producer_epoch": 0}])
async def test_kip_360_an_id_and_its_epoch_come_together(ask: Ask, half: dict[str, int]) -> None:
    values = {"transactional_id": None, "transaction_timeout": 1000, **half}
    response = await ask(INIT_PRODUCER_ID, 4, values)
    assert (response.error_code, response.producer_id) == (errors_pb2.INVALID_REQUEST, -1)


async def test_no_producer_ids_at_the_moment_is_worth_a_retry(inside: FakeBrokerInside) -> None:
    class Exhausted(FakeProducerIds):
        async def take(self) -> int:
            raise KafkaError(errors_pb2.COORDINATOR_LOAD_IN_PROGRESS, "no controller")

    services = dataclasses.replace(inside.services, producer_ids=Exhausted())
    values = {"transactional_id": None, "transaction_timeout": 1000}
    frame = memoryview(bytearray(request_frame(INIT_PRODUCER_ID, 0, values)))
    (body,) = await RequestDispatcher(services, api_table()).decode(frame, ClientSession("h")).run()
    assert body[4:6] == b"\0\x0e"


@pytest.mark.parametrize("version", range(5))
async def test_whoever_leads_a_groups_partition_coordinates_it(ask: Ask, version: int) -> None:
    values = {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}
    response = await ask(FIND_COORDINATOR, version, values)
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "127.0.0.1", 9092)


async def test_a_broker_that_clients_cannot_see_coordinates_nothing(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.brokers = {}
    response = await ask(FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
    assert response.error_code == errors_pb2.COORDINATOR_NOT_AVAILABLE
    assert response.node_id == NO_BROKER
    assert "'g'" in response.error_message
