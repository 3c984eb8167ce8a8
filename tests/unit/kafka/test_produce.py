"""Produce: records are not copied, each partition has an outcome, and acks=0 has no response."""

import struct

import pytest

from quorate.broker.common.errors import RecordError
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession, CloseConnection
from quorate.broker.replication.api import ProduceOutcome
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import producing, record_batch, request_frame
from tests.unit.kafka.conftest import Ask

PRODUCE = 0


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_partition_gets_its_outcome_in_every_version(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("t", 2)
    inside.replicas.errors[TopicPartition("t", 1)] = ProduceOutcome(
        errors_pb2.NOT_LEADER_OR_FOLLOWER, "broker 1 does not lead t-1"
    )
    await ask(PRODUCE, version, producing(record_batch(5), record_batch(1)))
    response = await ask(PRODUCE, version, producing(record_batch(2), record_batch(1)))
    (topic,) = response.responses
    good, bad = topic.partition_responses
    assert (topic.name, good.index, good.error_code, good.base_offset) == ("t", 0, 0, 5)
    assert (bad.index, bad.error_code, bad.base_offset) == (1, 6, -1)
    if version >= 5:
        assert (good.log_start_offset, bad.log_start_offset) == (0, -1)
    if version >= 8:
        assert (good.error_message, bad.error_message) == (None, "broker 1 does not lead t-1")
    (entries, acks, timeout_ms) = inside.replicas.produced[0]
    assert [entry.tp for entry in entries] == [("t", 0), ("t", 1)]
    assert (acks, timeout_ms) == (-1, 1500)


@pytest.mark.parametrize("version", range(3, 13))
async def test_kip_467_the_records_at_fault_are_named(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    inside.metadata.add_topic("t", 2)
    at_fault = (RecordError(0, "no key"), RecordError(7, "no value"))
    inside.replicas.errors[TopicPartition("t", 0)] = ProduceOutcome(
        errors_pb2.INVALID_RECORD, "2 of 9 records", record_errors=at_fault
    )
    response = await ask(PRODUCE, version, producing(record_batch(9), record_batch(1)))
    bad, good = response.responses[0].partition_responses
    assert (bad.error_code, good.error_code, good.base_offset) == (errors_pb2.INVALID_RECORD, 0, 0)
    if version >= 8:
        told = [(one.batch_index, one.batch_index_error_message) for one in bad.record_errors]
        assert told == list(at_fault)
        assert (bad.error_message, good.record_errors) == ("2 of 9 records", ())


async def test_records_are_a_writable_view_of_the_frame(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t")
    batch = record_batch()
    frame = bytearray(request_frame(PRODUCE, 9, producing(batch)))
    await (
        RequestDispatcher(inside.services, api_table())
        .decode(memoryview(frame), ClientSession("h"))
        .run()
    )
    records = inside.replicas.produced[0][0][0].records
    assert isinstance(records, memoryview)
    assert records == batch
    assert not records.readonly
    assert records.obj is frame


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_of_old_are_decoded_and_their_record_format_refused(
    inside: FakeBrokerInside, version: int
) -> None:
    inside.metadata.add_topic("t")
    magic_1 = struct.pack(">qiIBBqii", 0, 122, 0, 1, 0, 1, -1, 100) + bytes(100)
    body = struct.pack(">hiih1sii", 1, 1000, 1, 1, b"t", 1, 0)
    body += struct.pack(">i", len(magic_1)) + magic_1
    frame = memoryview(bytearray(request_frame(PRODUCE, version, body)))
    (answer,) = (
        await RequestDispatcher(inside.services, api_table())
        .decode(frame, ClientSession("h"))
        .run()
    )
    index, code, base_offset = struct.unpack_from(">ihq", answer, 4 + 3 + 4)
    assert (index, code, base_offset) == (0, errors_pb2.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)
    assert len(answer) == {0: 25, 1: 29, 2: 37}[version]


@pytest.mark.parametrize("acks", [2, -2, 32_767])
async def test_any_other_acks_is_refused_and_nothing_appended(
    inside: FakeBrokerInside, ask: Ask, acks: int
) -> None:
    inside.metadata.add_topic("t", 2)
    response = await ask(PRODUCE, 9, producing(record_batch(), record_batch(), acks=acks))
    outcomes = response.responses[0].partition_responses
    assert [outcome.error_code for outcome in outcomes] == [errors_pb2.INVALID_REQUIRED_ACKS] * 2
    assert f"acks={acks}" in outcomes[0].error_message
    assert inside.replicas.produced == []


async def test_a_corrupt_batch_is_refused_and_nothing_appended(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t")
    corrupt = bytearray(record_batch())
    corrupt[-1] ^= 1
    response = await ask(PRODUCE, 9, producing(bytes(corrupt)))
    (outcome,) = response.responses[0].partition_responses
    assert outcome.error_code == errors_pb2.CORRUPT_MESSAGE
    assert inside.replicas.logs[TopicPartition("t", 0)].end_offset == 0


async def test_acks_0_gets_no_answer(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t")
    frame = memoryview(bytearray(request_frame(PRODUCE, 9, producing(record_batch(), acks=0))))
    request = RequestDispatcher(inside.services, api_table()).decode(frame, ClientSession("h"))
    assert await request.run() == []
    assert inside.replicas.logs[TopicPartition("t", 0)].end_offset == 3


async def test_acks_0_learns_of_a_failure_by_the_closed_connection(
    inside: FakeBrokerInside,
) -> None:
    frame = memoryview(bytearray(request_frame(PRODUCE, 9, producing(record_batch(), acks=0))))
    request = RequestDispatcher(inside.services, api_table()).decode(frame, ClientSession("h"))
    with pytest.raises(CloseConnection, match="acks=0 to t failed with UNKNOWN_TOPIC_OR_PARTITION"):
        await request.run()


async def test_an_append_is_never_abandoned(inside: FakeBrokerInside) -> None:
    frame = memoryview(bytearray(request_frame(PRODUCE, 9, producing(record_batch()))))
    assert (
        not RequestDispatcher(inside.services, api_table())
        .decode(frame, ClientSession("h"))
        .abandonable
    )
