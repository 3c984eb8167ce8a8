"""Large requests: refused over their price, carried out in slices, answered like small ones (issue
17)."""

import asyncio
import dataclasses
import gc
import struct
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.api_work import WORK
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.request_work import DECODED_AT_ONCE, Items, Repeated
from quorate.broker.kafka.connection.requests import ClientSession, CloseConnection, Request
from quorate.broker.quota.client_memory import (
    ClientMemory,
    RequestMemory,
    ResponseLease,
    ResponseMemory,
)
from quorate.broker.quota.work_turns import SLICE_S, WorkTurns
from quorate.broker.replication.api import DeleteOutcome, OffsetOutcome
from quorate.common.types import TopicPartition
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import producing, read_answer, record_batch, request_frame
from tests.unit.test_work_turns import Passes

LIST_OFFSETS, OFFSET_COMMIT, DESCRIBE_CONFIGS, DESCRIBE_GROUPS = 2, 8, 32, 15


LOOKS_IN_A_SLICE = 8


class Ticking:
    """A clock that moves by the eighth of a slice with every look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks * SLICE_S / LOOKS_IN_A_SLICE


def decoded(inside: FakeBrokerInside, frame: bytes, **parts: Any) -> Request:  # noqa: ANN401
    services = dataclasses.replace(inside.services, **parts)
    dispatcher = RequestDispatcher(services, api_table())
    return dispatcher.decode(memoryview(bytearray(frame)), ClientSession("h"))


async def asked(inside: FakeBrokerInside, key: int, version: int, values: Any, **parts: Any) -> Any:  # noqa: ANN401
    request = decoded(inside, request_frame(key, version, values), **parts)
    answer = b"".join(frame_response(request, await request.run()))
    return read_answer(key, version, answer[4:])[1]


def listing(topics: Mapping[str, int]) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": number, "timestamp": -1, "current_leader_epoch": -1}
                    for number in range(count)
                ],
            }
            for name, count in topics.items()
        ],
    }


@pytest.mark.parametrize("version", range(1, 9))
@pytest.mark.parametrize(
    "topics", [{"t": 100}, {"t": 40, "u": 1, "v": 40}, dict.fromkeys("abcdefghijklmnopqrstu", 1)]
)
async def test_a_divided_request_is_answered_like_a_small_one(
    inside: FakeBrokerInside, version: int, topics: Mapping[str, int]
) -> None:
    for name, count in topics.items():
        inside.metadata.add_topic(name, count)
    answer = await asked(inside, LIST_OFFSETS, version, listing(topics))
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [*topics.items()]
    for topic in answer.topics:
        numbers = [one.partition_index for one in topic.partitions]
        assert numbers == [*range(topics[topic.name])]
        assert {one.error_code for one in topic.partitions} == {0}


async def test_a_large_request_is_carried_out_in_slices(
    inside: FakeBrokerInside, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pass: Counter[int] = Counter()

    def list_offset(tp: TopicPartition, *_: object) -> OffsetOutcome:
        in_pass[passes.count] += 1
        return OffsetOutcome()

    monkeypatch.setattr(inside.replicas, "list_offset", list_offset)
    with Passes() as passes:
        turns = WorkTurns(Ticking())
        await asked(inside, LIST_OFFSETS, 5, listing({"t": 10_000}), turns=turns)
    assert sum(in_pass.values()) == 10_000
    assert max(in_pass.values()) <= 9 * 16
    assert passes.count > 100


async def test_a_large_request_is_decoded_in_slices(inside: FakeBrokerInside) -> None:
    frame = request_frame(LIST_OFFSETS, 5, listing({"t": DECODED_AT_ONCE}))
    assert decoded(inside, frame).alone
    with Passes() as passes:
        request = decoded(inside, frame, turns=WorkTurns(Ticking()))
        assert passes.count == 1
        await request.run()


async def test_large_requests_wait_for_memory_before_they_are_decoded(
    inside: FakeBrokerInside,
) -> None:
    """One may go beyond the limit; the next one waits until that is finished."""
    memory = ClientMemory(elements=ResponseMemory(1_000))
    going: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def delete_records(wants: Any, timeout_ms: int) -> list[DeleteOutcome]:  # noqa: ANN401
        await asyncio.shield(going)
        return [DeleteOutcome() for _ in wants]

    inside.replicas.delete_records = delete_records  # type: ignore[method-assign]
    partitions = [{"partition_index": number, "offset": 0} for number in range(2 * DECODED_AT_ONCE)]
    frame = request_frame(
        21, 2, {"topics": [{"name": "t", "partitions": partitions}], "timeout": 9}
    )
    services = {"memory": memory}
    first, second, third = (
        asyncio.ensure_future(decoded(inside, frame, **services).run()) for _ in range(3)
    )
    for _ in range(200):
        await asyncio.sleep(0)
    assert memory.elements.held_bytes > 0
    assert memory.elements.waits >= 1
    going.set_result(None)
    await asyncio.wait_for(asyncio.gather(first, second, third), 10)
    assert memory.elements.held_bytes == 0


async def test_a_small_request_never_waits(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t", 5)
    with Passes() as passes:
        request = decoded(inside, request_frame(LIST_OFFSETS, 5, listing({"t": 5})))
        await request.run()
    assert (request.alone, request.decoded_bytes, passes.count) == (False, 0, 1)


@pytest.mark.parametrize("key", sorted(api_table()))
def test_every_api_has_a_price(key: int) -> None:
    work = api_table()[key].work
    assert 0 < work.elements_max <= 50_000
    assert work.division is None or work.division.at_once <= 250
    assert len(WORK) == len(api_table())


async def test_a_request_over_its_price_is_refused_where_the_response_can_say_so(
    inside: FakeBrokerInside,
) -> None:
    """ElectLeaders 2: a type, an array of topics that is announced to be too long."""
    count = WORK["ElectLeaders"].elements_max + 1
    body = struct.pack(">b", 0) + b"\xd2\x86\x03" + bytes(count * 3)
    request = decoded(inside, request_frame(43, 2, body))
    answer = b"".join(frame_response(request, await request.run()))
    _, response = read_answer(43, 2, answer[4:])
    assert response.error_code == errors_pb2.INVALID_REQUEST


async def test_a_request_over_its_price_closes_where_the_response_cannot_say_so(
    inside: FakeBrokerInside,
) -> None:
    count = WORK["DescribeGroups"].elements_max + 1
    body = struct.pack(">i", count) + bytes(2 * count)
    with pytest.raises(CloseConnection, match=r"describe_groups: .* at most 50000"):
        await decoded(inside, request_frame(DESCRIBE_GROUPS, 1, body)).run()


async def test_a_frame_that_is_too_long_is_refused_undecoded(inside: FakeBrokerInside) -> None:
    request = decoded(inside, request_frame(42, 1, bytes(5 << 20)))
    with pytest.raises(CloseConnection, match=r"a request of 52428.. bytes: at most 4194304"):
        await request.run()


class Frame(bytearray):
    """The memory of a frame, of which it can be seen when it is free."""


@pytest.mark.parametrize(
    ("key", "body"),
    [
        (LIST_OFFSETS, struct.pack(">ii", -1, 20_000) + bytes(6 * 20_000 - 3)),
        (LIST_OFFSETS, struct.pack(">ii", -1, 100_000) + bytes(100_000)),
        (43, struct.pack(">i", 100_000) + bytes(100_000)),
        (42, bytes(5 << 20)),
    ],
)
async def test_the_memory_of_a_refused_request_is_free_at_once(
    inside: FakeBrokerInside, key: int, body: bytes
) -> None:
    frame = Frame(request_frame(key, 1 if key != 43 else 0, body))
    is_free = weakref.ref(frame)
    dispatcher = RequestDispatcher(inside.services, api_table())
    gc.collect()
    gc.disable()
    try:
        task = asyncio.ensure_future(dispatcher.decode(memoryview(frame), ClientSession("h")).run())
        await asyncio.wait({task})
        error = task.exception()
        if error is not None:
            error.__traceback__ = None
        del task, error, frame
        assert is_free() is None
        assert gc.collect() < 1_000
    finally:
        gc.enable()


async def test_malformed_bytes_of_a_large_request_close(inside: FakeBrokerInside) -> None:
    body = struct.pack(">ii", -1, 2_000) + bytes(2_001)
    with pytest.raises(CloseConnection, match="malformed request: list_offsets version 1"):
        await decoded(inside, request_frame(LIST_OFFSETS, 1, body)).run()


async def test_the_parts_of_a_request_share_its_timeout(
    inside: FakeBrokerInside, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts_ms: list[int] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", lambda: 100.0 + len(timeouts_ms) * 0.3)

    async def forward(change: Any, request: Any, **_: Any) -> Any:  # noqa: ANN401
        timeouts_ms.append(request.context.timeout_ms)
        return admin_pb2.ElectLeadersResponse()

    monkeypatch.setattr(inside.forwarder, "forward", forward)
    topics = [{"topic": f"t{number}", "partitions": [0]} for number in range(1_000)]
    values = {"election_type": 0, "topic_partitions": topics, "timeout": 700}
    await asked(inside, 43, 2, values)
    assert timeouts_ms == [700, 400, 100, 1]


async def test_what_is_named_again_is_described_once(inside: FakeBrokerInside) -> None:
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    inside.configs.results = [admin_pb2.DescribedConfig()]
    values = {"resources": [resource] * 300}
    answer = await asked(inside, DESCRIBE_CONFIGS, 4, values)
    assert len(answer.results) == 1
    groups = {"groups": ["g"] * 300, "include_authorized_operations": False}
    assert len((await asked(inside, DESCRIBE_GROUPS, 5, groups)).groups) == 1


async def test_the_parts_of_a_produce_request_append_in_order(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t", 300)
    batches = [record_batch(1) for _ in range(300)]
    answer = await asked(inside, 0, 9, producing(*batches))
    (topic,) = answer.responses
    assert [one.index for one in topic.partition_responses] == [*range(300)]
    assert {one.error_code for one in topic.partition_responses} == {0}
    produced = [
        entry.tp.partition for entries, _, _ in inside.replicas.produced for entry in entries
    ]
    assert produced == [*range(300)]
    assert len(inside.replicas.produced) > 1


async def test_a_small_produce_request_comes_between_the_parts_of_a_large_one(
    inside: FakeBrokerInside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large one waits before each part until little waits for the disk."""
    inside.metadata.add_topic("t", 640)
    room = asyncio.Semaphore(2)
    monkeypatch.setattr(inside.replicas, "wait_for_turn", room.acquire)
    large = request_frame(0, 9, producing(*[record_batch(1) for _ in range(640)]))
    waiting = asyncio.ensure_future(decoded(inside, large).run())
    for _ in range(100):
        await asyncio.sleep(0)
    assert [len(entries) for entries, _, _ in inside.replicas.produced] == [64, 64]
    await asked(inside, 0, 9, producing(record_batch(1)))
    assert [len(entries) for entries, _, _ in inside.replicas.produced] == [64, 64, 1]
    for _ in range(8):
        room.release()
    answer = b"".join(frame_response(decoded(inside, large), await waiting))
    (topic,) = read_answer(0, 9, answer[4:])[1].responses
    assert [one.base_offset for one in topic.partition_responses] == [0] * 640


async def test_a_response_in_parts_holds_memory_until_it_is_sent(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t", 500)
    memory = ClientMemory(RequestMemory(), ResponseMemory(1 << 20))
    request = decoded(inside, request_frame(LIST_OFFSETS, 5, listing({"t": 500})), memory=memory)
    size = sum(map(len, await request.run()))
    assert size - 100 < memory.responses.held_bytes == request.lease.held_bytes <= size
    request.lease.keep(0)
    assert memory.responses.held_bytes == 0


async def test_a_response_that_is_too_long_is_refused(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t", 500)
    memory = ClientMemory(RequestMemory(), ResponseMemory(1_000))
    request = decoded(inside, request_frame(LIST_OFFSETS, 5, listing({"t": 500})), memory=memory)
    with pytest.raises(CloseConnection, match="more than 500 bytes: ask for less at once"):
        await request.run()


async def test_responses_that_grow_do_not_wait_for_one_another() -> None:
    """While there is no room, one of them goes on, and the next one when that is sent."""
    memory = ClientMemory(RequestMemory(), ResponseMemory(100)).responses
    first, second = ResponseLease(memory), ResponseLease(memory)
    await memory.grow(first, 60)
    await memory.grow(second, 60)
    await memory.grow(first, 100)
    waiting = asyncio.ensure_future(memory.grow(second, 100))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.keep(0)
    await asyncio.wait_for(waiting, 1)


PARTS = Items(field="topics", name=("name",), inner="partitions", at_once=3)


def parts_of(items: Items, *topics: tuple[str, str]) -> list[list[tuple[str, str]]]:
    body = {"topics": [{"name": name, "partitions": list(numbers)} for name, numbers in topics]}
    return [
        [(topic["name"], "".join(topic["partitions"])) for topic in part["topics"]]
        for part in items.parts(body)
    ]


def test_parts_have_few_items_each() -> None:
    assert parts_of(PARTS, ("a", "12"), ("b", "1"), ("c", "12345"), ("d", "")) == [
        [("a", "12"), ("b", "1")],
        [("c", "123")],
        [("c", "45"), ("d", "")],
    ]


def test_repeated_items_are_dropped_or_stay_together() -> None:
    dropped = dataclasses.replace(PARTS, repeated=Repeated.DROPPED)
    assert parts_of(dropped, ("a", "112"), ("b", "1"), ("a", "24")) == [
        [("a", "124")],
        [("b", "1")],
    ]
    together = Items(field="topics", name=("name",), at_once=2, repeated=Repeated.TOGETHER)
    assert parts_of(together, ("a", ""), ("b", ""), ("c", ""), ("a", ""), ("d", "")) == [
        [("a", ""), ("a", "")],
        [("b", ""), ("c", "")],
        [("d", "")],
    ]


def test_a_request_without_items_is_one_part() -> None:
    assert [*PARTS.parts({"topics": None})] == [{"topics": None}]
