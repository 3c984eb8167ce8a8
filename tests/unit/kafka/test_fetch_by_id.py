"""Fetch from version 13 on names topics by their ids, in sessions too (KIP-516)."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.config.authorizer import STANDARD_AUTHORIZER
from quorate.broker.kafka.records.fetch_messages import decode
from quorate.broker.kafka.wire.primitives import Cursor, MalformedRequest, at_once
from quorate.broker.replication.api import ProduceEntry
from quorate.broker.security.principal import ANONYMOUS
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, ResourceType
from quorate.common.types import TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.acls import acl, added, log_with
from tests.support.kafka_fakes import FakeBrokerInside, fake_broker
from tests.support.kafka_wire import Values, fetching, record_batch, request_body
from tests.unit.kafka.conftest import Ask

FETCH = 1
VERSIONS = range(13, 19)
BY_NAME = 12
NOBODY = UUID(int=1)
UNKNOWN_ID = errors_pb2.UNKNOWN_TOPIC_ID
INCONSISTENT = errors_pb2.INCONSISTENT_TOPIC_ID

Place = tuple[UUID, int]


def of(
    *places: Place,
    session: tuple[int, int] = (0, -1),
    forgotten: tuple[Place, ...] = (),
    **fields: Any,  # noqa: ANN401
) -> Values:
    """A Fetch request for these partitions, that forgets those."""
    template = fetching(session=session, **fields)
    (topic,) = template["topics"]
    (partition,) = topic["partitions"]
    topics = [
        {"topic_id": topic_id, "partitions": [{**partition, "partition": n}]}
        for topic_id, n in places
    ]
    forgets = [{"topic_id": topic_id, "partitions": [n]} for topic_id, n in forgotten]
    return {**template, "topics": topics, "forgotten_topics_data": forgets}


def codes(response: Any) -> dict[Place, int]:  # noqa: ANN401 - a FetchResponse
    assert response.error_code == errors_pb2.NONE
    return {
        (topic.topic_id, one.partition_index): int(one.error_code)
        for topic in response.responses
        for one in topic.partitions
    }


def create(inside: FakeBrokerInside, name: str = "t", partitions: int = 2) -> UUID:
    """Create a topic, also in place of another one with its name."""
    for tp in [tp for tp in inside.replicas.logs if tp.topic == name]:
        del inside.replicas.logs[tp]
    return UUID(bytes=inside.metadata.add_topic(name, partitions).topic_id)


async def append(inside: FakeBrokerInside, name: str = "t", count: int = 1) -> bytes:
    tp = TopicPartition(name, 0)
    await inside.replicas.produce(
        [ProduceEntry(tp, memoryview(bytearray(record_batch(count))))], 1, 0
    )
    return bytes(inside.replicas.logs[tp].batches[-1].data)


def sessions_of(inside: FakeBrokerInside) -> int:
    return len(inside.services.fetch_sessions)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_is_read_as_another_codec_writes_it(version: int) -> None:
    sent = of((UUID(int=5), 7), session=(3, 4), forgotten=((UUID(int=6), 8),), offset=9, rack="r")
    request = at_once(decode(version, Cursor(memoryview(request_body(FETCH, version, sent)))))
    assert request.unnamed == [(TopicId(UUID(int=5).bytes), [(7, -1, 9, 1 << 20)])]
    assert request.forgotten == [TopicIdPartition(TopicId(UUID(int=6).bytes), 8)]
    assert (request.session_id, request.session_epoch, request.rack) == (3, 4, "r")
    assert (request.topics, request.replica_id) == ([], -1)


@pytest.mark.parametrize("version", [15, 18])
def test_a_replica_state_that_is_cut_off_is_malformed(version: int) -> None:
    body = request_body(FETCH, version, of((NOBODY, 0)))
    assert body[-1] == 0, "it has no tagged fields"
    for state, is_whole in ((b"\0\0\0\1" + bytes(9), True), (b"\0\0\0", False)):
        tagged = body[:-1] + bytes([1, 1, len(state)]) + state
        reading = decode(version, Cursor(memoryview(tagged)))
        if is_whole:
            assert at_once(reading).replica_id == 1
        else:
            with pytest.raises(MalformedRequest):
                at_once(reading)


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_come_back_under_the_id_of_their_topic(
    inside: FakeBrokerInside, ask: Ask, version: int
) -> None:
    here = create(inside)
    stored = await append(inside, count=3)
    response = await ask(FETCH, version, of((here, 0), (here, 1), (here, 7), (NOBODY, 0)))
    unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
    expected = {(here, 0): 0, (here, 1): 0, (here, 7): unknown, (NOBODY, 0): UNKNOWN_ID}
    assert codes(response) == expected
    found = response.responses[0].partitions[0]
    assert (found.records, found.high_watermark, found.log_start_offset) == (stored, 3, 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_session_goes_on_by_ids(inside: FakeBrokerInside, ask: Ask, version: int) -> None:
    here, there = create(inside), create(inside, "u")
    first = await ask(FETCH, version, of((here, 0), (there, 0), session=(0, 0)))
    session = first.session_id
    assert session > 0
    assert codes(first) == {(here, 0): 0, (there, 0): 0}
    assert codes(await ask(FETCH, version, of(session=(session, 1)))) == {}
    await append(inside, "u")
    assert codes(await ask(FETCH, version, of(session=(session, 2)))) == {(there, 0): 0}
    forgets = of(session=(session, 3), forgotten=((there, 0),))
    assert codes(await ask(FETCH, version, forgets)) == {}
    await append(inside, "u")
    await append(inside)
    assert codes(await ask(FETCH, version, of(session=(session, 4)))) == {(here, 0): 0}


async def test_an_unknown_id_gets_its_error_each_time_and_no_session(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    here = create(inside)
    for _ in range(2):
        refused = await ask(FETCH, 13, of((here, 0), (NOBODY, 0), session=(0, 0)))
        assert (refused.session_id, sessions_of(inside)) == (0, 0)
        assert codes(refused) == {(here, 0): 0, (NOBODY, 0): UNKNOWN_ID}


async def test_a_session_that_is_given_an_unknown_id_ends_with_that_answer(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    here = create(inside)
    session = (await ask(FETCH, 13, of((here, 0), session=(0, 0)))).session_id
    last = await ask(FETCH, 13, of((NOBODY, 3), session=(session, 1)))
    assert (last.session_id, sessions_of(inside)) == (0, 0)
    assert codes(last) == {(here, 0): 0, (NOBODY, 3): UNKNOWN_ID}


async def test_a_topic_that_is_created_again_is_not_read_in_the_session_of_the_one_before(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    before = create(inside)
    session = (await ask(FETCH, 13, of((before, 0), session=(0, 0)))).session_id
    after = create(inside)
    new = await append(inside)
    for waiter in list(inside.replicas.waiters[TopicPartition("t", 0)]):
        waiter.wake()
    told = await ask(FETCH, 13, of(session=(session, 1)))
    assert codes(told) == {(before, 0): INCONSISTENT}
    assert not told.responses[0].partitions[0].records
    assert codes(await ask(FETCH, 13, of((before, 0)))) == {(before, 0): UNKNOWN_ID}
    found = await ask(FETCH, 13, of((after, 0)))
    assert found.responses[0].partitions[0].records == new


async def test_a_session_may_replace_a_topic_by_the_one_that_has_its_name_now(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    """The client learns of the new id before the session has told it of the change."""
    before = create(inside)
    session = (await ask(FETCH, 13, of((before, 0), session=(0, 0)))).session_id
    after = create(inside)
    new = await append(inside)
    replaces = of((after, 0), session=(session, 1), forgotten=((before, 0),))
    told = await ask(FETCH, 13, replaces)
    assert (told.session_id, codes(told)) == (session, {(after, 0): 0})
    assert told.responses[0].partitions[0].records == new


async def test_all_requests_of_a_session_name_topics_in_the_same_way(
    inside: FakeBrokerInside, ask: Ask
) -> None:
    here = create(inside)
    by_id = (await ask(FETCH, 13, of((here, 0), session=(0, 0)))).session_id
    by_name = (await ask(FETCH, BY_NAME, fetching(session=(0, 0)))).session_id
    error = errors_pb2.FETCH_SESSION_TOPIC_ID_ERROR
    other_way = await ask(FETCH, BY_NAME, fetching(partitions=(), session=(by_id, 1)))
    assert (other_way.error_code, other_way.session_id) == (error, 0)
    other_way = await ask(FETCH, 13, of(session=(by_name, 1)))
    assert (other_way.error_code, other_way.session_id) == (error, 0)
    assert (await ask(FETCH, 13, of(session=(by_id, 1)))).session_id == by_id
    again = await ask(FETCH, BY_NAME, fetching(partitions=(), session=(by_name, 1)))
    assert again.session_id == by_name


class TestWithRights:
    """The client of these tests may read ``mine``."""

    @pytest.fixture
    def inside(self, tmp_path: Path) -> FakeBrokerInside:
        """A broker with the topics mine and theirs."""
        self.acls = log_with(acl(str(ANONYMOUS), AclOperation.READ, ResourceType.TOPIC, "mine"))
        settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
        return fake_broker(tmp_path, image=lambda: self.acls.image, **settings)

    async def test_f5_the_id_of_a_topic_gives_no_right_to_it(
        self, inside: FakeBrokerInside, ask: Ask
    ) -> None:
        mine, theirs = create(inside, "mine"), create(inside, "theirs")
        denied = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        request = of((mine, 0), (theirs, 0), (NOBODY, 0), session=(0, 0))
        told = codes(await ask(FETCH, 17, request))
        assert told == {(mine, 0): 0, (theirs, 0): denied, (NOBODY, 0): UNKNOWN_ID}

    @pytest.mark.parametrize("version", VERSIONS)
    async def test_f5_nobody_fetches_as_a_follower(
        self, inside: FakeBrokerInside, ask: Ask, version: int
    ) -> None:
        mine = create(inside, "mine")
        await append(inside, "mine")
        request = of((mine, 0), (NOBODY, 0), session=(0, 0), replica_id=1)
        if version >= 15:
            request["replica_state"] = {"replica_id": 1, "replica_epoch": 1}
        denied = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        assert codes(await ask(FETCH, version, request)) == {(mine, 0): denied, (NOBODY, 0): denied}
        is_broker = acl(
            str(ANONYMOUS), AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        self.acls.write_as_controller(added(is_broker))
        assert codes(await ask(FETCH, version, request)) == {
            (mine, 0): errors_pb2.NOT_LEADER_OR_FOLLOWER,
            (NOBODY, 0): UNKNOWN_ID,
        }
        assert sessions_of(inside) == 0
