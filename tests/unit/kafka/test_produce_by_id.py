"""Produce from version 13 on names topics by their ids (KIP-516)."""

from pathlib import Path
from uuid import UUID

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.config.internal_topics import OFFSETS_TOPIC
from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher
from quorate.broker.kafka.connection.requests import ClientSession, CloseConnection
from quorate.broker.kafka.records.produce_api import PARTITIONS_AT_ONCE
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.acls import log_with
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import (
    Values,
    by_topic_ids,
    producing,
    read_answer,
    record_batch,
    request_frame,
)
from tests.unit.kafka.conftest import Ask

PRODUCE = 0
BY_ID = 13
NOBODY = UUID(int=1)


def topic_id(inside: FakeBrokerInside, name: str = "t") -> UUID:
    return UUID(bytes=inside.metadata.topics[name].topic_id)


def to(*ids: UUID, acks: int = -1) -> Values:
    """A request with one batch for partition 0 of each topic."""
    template = producing(record_batch(), acks=acks)
    (topic,) = template["topic_data"]
    partitions = topic["partition_data"]
    topics = [{"topic_id": each, "partition_data": partitions} for each in ids]
    return {**template, "topic_data": topics}


async def test_a_topic_is_found_by_its_id_and_answered_by_it(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t", 2)
    ids = {"t": topic_id(inside)}
    request = by_topic_ids(producing(record_batch(5), record_batch(1)), ids)
    (topic,) = (await ask(PRODUCE, BY_ID, request)).responses
    assert topic.topic_id == ids["t"]
    assert [(one.index, one.error_code) for one in topic.partition_responses] == [(0, 0), (1, 0)]
    assert inside.replicas.logs[TopicPartition("t", 0)].end_offset == 5


async def test_an_unknown_id_is_refused_and_the_others_are_appended(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t")
    inside.metadata.add_topic(OFFSETS_TOPIC)
    ids = (NOBODY, topic_id(inside), UUID(int=2), topic_id(inside, OFFSETS_TOPIC))
    response = await ask(PRODUCE, BY_ID, to(*ids))
    unknown, internal = errors_pb2.UNKNOWN_TOPIC_ID, errors_pb2.INVALID_TOPIC_EXCEPTION
    assert {one.topic_id: one.partition_responses[0].error_code for one in response.responses} == (
        dict(zip(ids, (unknown, 0, unknown, internal), strict=True))
    )
    assert [topic.topic_id for topic in response.responses] == list(ids)


async def test_what_is_sent_to_a_topic_never_gets_into_its_successor(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    inside.metadata.add_topic("t")
    before = topic_id(inside)
    inside.metadata.add_topic("t")
    response = await ask(PRODUCE, BY_ID, to(before))
    (outcome,) = response.responses[0].partition_responses
    assert (outcome.error_code, outcome.base_offset) == (errors_pb2.UNKNOWN_TOPIC_ID, -1)
    assert not inside.replicas.logs


async def test_acks_0_to_an_unknown_id_closes_the_connection(inside: FakeBrokerInside) -> None:
    frame = memoryview(bytearray(request_frame(PRODUCE, BY_ID, to(NOBODY, acks=0))))
    request = RequestDispatcher(inside.services, api_table()).decode(frame, ClientSession("h"))
    with pytest.raises(CloseConnection, match="a topic of an unknown id failed with UNKNOWN_TOPIC"):
        await request.run()


async def test_a_large_request_is_answered_by_ids_too(inside: FakeBrokerInside) -> None:
    count = PARTITIONS_AT_ONCE + 1
    inside.metadata.add_topic("t", count)
    large = by_topic_ids(producing(*[record_batch()] * count), {"t": topic_id(inside)})
    frame = memoryview(bytearray(request_frame(PRODUCE, BY_ID, large)))
    request = RequestDispatcher(inside.services, api_table()).decode(frame, ClientSession("h"))
    encoded = b"".join(await request.run())
    _, response = read_answer(PRODUCE, BY_ID, (7).to_bytes(4) + b"\0" + encoded)
    (topic,) = response.responses
    assert topic.topic_id == topic_id(inside)
    assert [one.error_code for one in topic.partition_responses] == [0] * count


class TestWithoutRights:
    """The client of these tests may write to no topic."""

    @pytest.fixture
    def inside(self, tmp_path: Path) -> FakeBrokerInside:
        """A broker that lets in nobody."""
        acls = log_with()
        settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
        return fake_broker(tmp_path, image=lambda: acls.image, **settings)

    async def test_f5_the_id_of_a_topic_gives_no_right_to_it(
        self, inside: FakeBrokerInside, ask: Ask
    ) -> None:
        inside.metadata.add_topic("t")
        response = await ask(PRODUCE, BY_ID, to(topic_id(inside), NOBODY))
        assert [one.partition_responses[0].error_code for one in response.responses] == [
            errors_pb2.TOPIC_AUTHORIZATION_FAILED,
            errors_pb2.UNKNOWN_TOPIC_ID,
        ]
        assert not inside.replicas.produced
