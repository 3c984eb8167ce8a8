"""Fetch sessions as a client sees them: responses with news only, and invalid requests."""

import asyncio
from typing import Any

import pytest

from quorate.broker.replication.api import ProduceEntry
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import fetching, record_batch
from tests.unit.kafka.conftest import Ask

FETCH = 1
VERSIONS = (7, 8, 9, 10, 11, 12)


async def append(inside: FakeBrokerInside, partition: int, count: int = 1) -> None:
    records = memoryview(bytearray(record_batch(count)))
    await inside.replicas.produce([ProduceEntry(TopicPartition("t", partition), records)], 1, 0)


def partitions_of(response: Any) -> list[int]:  # noqa: ANN401 - a FetchResponse
    assert response.error_code == errors_pb2.NONE
    return [one.partition_index for topic in response.responses for one in topic.partitions]


@pytest.fixture
def topic(inside: FakeBrokerInside) -> FakeBrokerInside:
    inside.metadata.add_topic("t", 4)
    return inside


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_first_answer_has_all_partitions_later_ones_have_news(
    topic: FakeBrokerInside, ask: Ask, version: int
) -> None:
    first = await ask(FETCH, version, fetching(partitions=(0, 1, 2), session=(0, 0)))
    assert partitions_of(first) == [0, 1, 2]
    session = first.session_id
    assert session > 0
    nothing = await ask(FETCH, version, fetching(partitions=(), session=(session, 1)))
    assert (nothing.session_id, partitions_of(nothing)) == (session, [])
    await append(topic, 1)
    await append(topic, 3)
    news = await ask(FETCH, version, fetching(partitions=(), session=(session, 2)))
    assert partitions_of(news) == [1]
    assert news.responses[0].partitions[0].records


async def test_what_was_sent_is_sent_again_until_the_client_has_moved_on(
    topic: FakeBrokerInside, ask: Ask
) -> None:
    await append(topic, 0)
    session = (await ask(FETCH, 12, fetching(session=(0, 0)))).session_id
    again = await ask(FETCH, 12, fetching(partitions=(), session=(session, 1)))
    assert again.responses[0].partitions[0].records
    moved = await ask(FETCH, 12, fetching(1, session=(session, 2)))
    assert partitions_of(moved) == []


async def test_a_partition_without_news_is_not_looked_at(topic: FakeBrokerInside, ask: Ask) -> None:
    first = await ask(FETCH, 12, fetching(partitions=(0, 1, 2, 3), session=(0, 0)))
    topic.replicas.looked_at.clear()
    await append(topic, 2)
    await ask(FETCH, 12, fetching(partitions=(), session=(first.session_id, 1)))
    assert topic.replicas.looked_at == [TopicPartition("t", 2)]


async def test_partitions_come_and_go(topic: FakeBrokerInside, ask: Ask) -> None:
    session = (await ask(FETCH, 12, fetching(partitions=(0, 1), session=(0, 0)))).session_id
    changed = fetching(partitions=(2,), session=(session, 1), forgotten=(0,))
    assert partitions_of(await ask(FETCH, 12, changed)) == [2]
    for partition in range(4):
        await append(topic, partition)
    news = await ask(FETCH, 12, fetching(partitions=(), session=(session, 2)))
    assert sorted(partitions_of(news)) == [1, 2]
    assert not topic.replicas.waiters[TopicPartition("t", 0)]


async def test_a_session_without_partitions_is_at_its_end(
    topic: FakeBrokerInside, ask: Ask
) -> None:
    session = (await ask(FETCH, 12, fetching(session=(0, 0)))).session_id
    last = await ask(FETCH, 12, fetching(partitions=(), session=(session, 1), forgotten=(0,)))
    assert (last.error_code, last.session_id) == (errors_pb2.NONE, 0)
    assert len(topic.services.fetch_sessions) == 0
    gone = await ask(FETCH, 12, fetching(session=(session, 2)))
    assert gone.error_code == errors_pb2.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 7, -2])
async def test_another_epoch_is_refused_and_the_session_goes_on(
    topic: FakeBrokerInside, ask: Ask, epoch: int
) -> None:
    session = (await ask(FETCH, 12, fetching(session=(0, 0)))).session_id
    wrong = await ask(FETCH, 12, fetching(partitions=(1,), session=(session, epoch)))
    assert (wrong.error_code, wrong.session_id) == (errors_pb2.INVALID_FETCH_SESSION_EPOCH, 0)
    assert wrong.responses == ()
    await append(topic, 1)
    right = await ask(FETCH, 12, fetching(partitions=(), session=(session, 1)))
    assert partitions_of(right) == [], "nothing of a refused request is taken up"


@pytest.mark.parametrize("session", [(77, 1), (0, 5)])
async def test_an_unknown_session_is_refused(
    topic: FakeBrokerInside, ask: Ask, session: tuple[int, int]
) -> None:
    response = await ask(FETCH, 12, fetching(session=session))
    assert response.error_code == errors_pb2.FETCH_SESSION_ID_NOT_FOUND
    assert (response.session_id, response.responses) == (0, ())


@pytest.mark.parametrize(("epoch", "sessions"), [(-1, 0), (0, 1)])
async def test_a_full_request_ends_the_session_that_it_names(
    topic: FakeBrokerInside, ask: Ask, epoch: int, sessions: int
) -> None:
    session = (await ask(FETCH, 12, fetching(session=(0, 0)))).session_id
    full = await ask(FETCH, 12, fetching(partitions=(0, 1), session=(session, epoch)))
    assert partitions_of(full) == [0, 1]
    assert (full.session_id != 0) == bool(sessions)
    assert full.session_id != session
    assert len(topic.services.fetch_sessions) == sessions


async def test_whoever_asks_for_none_gets_none(topic: FakeBrokerInside, ask: Ask) -> None:
    assert (await ask(FETCH, 12, fetching())).session_id == 0
    empty = await ask(FETCH, 12, fetching(partitions=(), session=(0, 0)))
    assert (empty.error_code, empty.session_id) == (errors_pb2.NONE, 0)
    assert len(topic.services.fetch_sessions) == 0


async def test_an_error_is_told_each_time_and_so_is_the_recovery(
    topic: FakeBrokerInside, ask: Ask
) -> None:
    first = await ask(FETCH, 12, fetching(5, session=(0, 0)))
    for epoch in (1, 2):
        request = fetching(partitions=(), session=(first.session_id, epoch), max_wait_ms=60_000)
        response = await ask(FETCH, 12, request)
        (partition,) = response.responses[0].partitions
        assert partition.error_code == errors_pb2.OFFSET_OUT_OF_RANGE
    moved = await ask(FETCH, 12, fetching(0, session=(first.session_id, 3)))
    (partition,) = moved.responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (errors_pb2.NONE, 0)


async def test_a_long_poll_of_a_session_wakes_with_news(topic: FakeBrokerInside, ask: Ask) -> None:
    first = await ask(FETCH, 12, fetching(partitions=(0, 1), session=(0, 0)))
    request = fetching(partitions=(), session=(first.session_id, 1), max_wait_ms=60_000)
    polling = asyncio.ensure_future(ask(FETCH, 12, request))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not polling.done()
    await append(topic, 1)
    assert partitions_of(await polling) == [1]


async def test_a_long_poll_ends_with_its_session(topic: FakeBrokerInside, ask: Ask) -> None:
    first = await ask(FETCH, 12, fetching(session=(0, 0)))
    request = fetching(partitions=(), session=(first.session_id, 1), max_wait_ms=60_000)
    polling = asyncio.ensure_future(ask(FETCH, 12, request))
    for _ in range(5):
        await asyncio.sleep(0)
    await ask(FETCH, 12, fetching(session=(first.session_id, -1)))
    assert (await polling).error_code == errors_pb2.FETCH_SESSION_ID_NOT_FOUND
    assert not topic.replicas.waiters[TopicPartition("t", 0)]


async def test_requests_of_one_session_are_carried_out_in_turn(
    topic: FakeBrokerInside, ask: Ask
) -> None:
    session = (await ask(FETCH, 12, fetching(partitions=(0, 1), session=(0, 0)))).session_id
    request = fetching(partitions=(), session=(session, 1), max_wait_ms=60_000)
    first = asyncio.ensure_future(ask(FETCH, 12, request))
    second = asyncio.ensure_future(ask(FETCH, 12, fetching(partitions=(2,), session=(session, 2))))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not second.done()
    await append(topic, 0)
    assert partitions_of(await first) == [0]
    assert sorted(partitions_of(await second)) == [0, 2]


async def test_an_abandoned_first_request_leaves_no_session(
    topic: FakeBrokerInside, ask: Ask
) -> None:
    polling = asyncio.ensure_future(ask(FETCH, 12, fetching(max_wait_ms=60_000, session=(0, 0))))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(topic.services.fetch_sessions) == 1
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert len(topic.services.fetch_sessions) == 0
    assert not topic.replicas.waiters[TopicPartition("t", 0)]
