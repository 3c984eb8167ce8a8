"""The cost of requests is counted, and responses contain the throttle time of their client."""

import asyncio
import dataclasses
import datetime
from typing import Any

import pytest

from quorate.broker.kafka.api_table import api_table
from quorate.broker.kafka.connection.request_dispatcher import RequestDispatcher, frame_response
from quorate.broker.kafka.connection.requests import ClientSession
from quorate.broker.quota.client_quota_manager import ClientQuotaManager
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.metadata_log.client_quotas import ClientQuotaEntity, ClientQuotas
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.kafka_fakes import FakeBrokerInside
from tests.support.kafka_wire import (
    Values,
    producing,
    read_answer,
    record_batch,
    request_frame,
)
from tests.unit.kafka.test_topics import creating, new

PRODUCE, FETCH, METADATA, CREATE, DELETE, ADD = 0, 1, 3, 19, 20, 37
BATCH = record_batch(100)
EVERY_CLIENT = ClientQuotaEntity(client_id="")


class Client:
    """A client of ``inside`` under ``quotas``; ``muted_ms``: after its last request."""

    def __init__(self, inside: FakeBrokerInside, quotas: ClientQuotas) -> None:
        self.now_ms = 0.0
        manager = ClientQuotaManager(QuotaWindow(11, 1), lambda: self.now_ms, quotas)
        services = dataclasses.replace(inside.services, quotas=manager)
        self._dispatcher = RequestDispatcher(services, api_table())
        self.muted_ms = 0
        self.sent_bytes = 0
        self.received_bytes = 0

    async def ask(self, key: int, version: int, values: Values | bytes) -> Any:  # noqa: ANN401
        frame = memoryview(bytearray(request_frame(key, version, values)))
        self.sent_bytes = len(frame)
        request = self._dispatcher.decode(frame, ClientSession("10.0.0.9"))
        body = await request.run()
        self.received_bytes = sum(map(len, body))
        self.muted_ms = request.throttle.time_ms
        if not body:
            return None
        return read_answer(key, version, b"".join(frame_response(request, body))[4:])[1]

    def waits_ms(self, key: int, version: int, values: Values) -> int:
        """Return for how long a request by a new connection has to wait."""
        frame = memoryview(bytearray(request_frame(key, version, values)))
        turn = self._dispatcher.decode(frame, ClientSession("10.0.0.9")).turn
        return 0 if turn is None else turn.wait_ms()


ASKING: Values = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def throttle_ms(response: Any) -> int:  # noqa: ANN401
    return int(response.throttle_time / datetime.timedelta(milliseconds=1))


def fetching() -> Values:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


@pytest.mark.parametrize("version", [3, 8, 9, 10])
async def test_q11_bytes_produced_above_the_quota_are_waited_for(
    inside: FakeBrokerInside, version: int
) -> None:
    inside.metadata.add_topic("t")
    client = Client(inside, {EVERY_CLIENT: {"producer_byte_rate": 10.0}})
    response = await client.ask(PRODUCE, version, producing(BATCH))
    expected = (client.sent_bytes / 10 - 10) / 10 * 10_000
    assert throttle_ms(response) == client.muted_ms == pytest.approx(expected, abs=1)
    assert response.responses[0].partition_responses[0].error_code == 0


async def test_q11_a_producer_that_wants_no_answer_is_muted(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t")
    client = Client(inside, {EVERY_CLIENT: {"producer_byte_rate": 10.0}})
    assert await client.ask(PRODUCE, 8, producing(BATCH, acks=0)) is None
    assert client.muted_ms > 0


@pytest.mark.parametrize("version", [4, 7, 12])
async def test_q11_bytes_fetched_above_the_quota_are_waited_for(
    inside: FakeBrokerInside, version: int
) -> None:
    inside.metadata.add_topic("t")
    client = Client(inside, {EVERY_CLIENT: {"consumer_byte_rate": 10.0}})
    await client.ask(PRODUCE, 8, producing(BATCH))
    assert client.muted_ms == 0, "that is another quota"
    response = await client.ask(FETCH, version, fetching())
    expected = (client.received_bytes / 10 - 10) / 10 * 10_000
    assert throttle_ms(response) == client.muted_ms == pytest.approx(expected, abs=1)
    assert response.responses[0].partitions[0].records, "it is answered all the same"


async def test_q11_what_is_fetched_is_not_counted_as_produced(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t")
    client = Client(inside, {EVERY_CLIENT: {"producer_byte_rate": 1e-3}})
    await client.ask(FETCH, 12, fetching())
    assert client.muted_ms == 0


async def test_q11_below_its_quota_nobody_waits(inside: FakeBrokerInside) -> None:
    inside.metadata.add_topic("t")
    client = Client(inside, {EVERY_CLIENT: {"producer_byte_rate": 1e6, "consumer_byte_rate": 1e6}})
    produced = await client.ask(PRODUCE, 8, producing(BATCH))
    fetched = await client.ask(FETCH, 12, fetching())
    assert throttle_ms(produced) == throttle_ms(fetched) == client.muted_ms == 0


async def test_q11_the_time_that_requests_take_is_counted_and_not_that_they_wait(
    inside: FakeBrokerInside, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ns = 0

    async def busy(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        nonlocal clock_ns
        clock_ns += 30_000_000
        await asyncio.sleep(0)
        clock_ns += 20_000_000
        return admin_pb2.CreateTopicsResponse()

    monkeypatch.setattr("time.perf_counter_ns", lambda: clock_ns)
    inside.forwarder.answers["CreateTopics"] = busy
    client = Client(inside, {EVERY_CLIENT: {"request_percentage": 0.48}})
    response = await client.ask(CREATE, 5, creating(new("a")))
    assert throttle_ms(response) == client.muted_ms == 417, "50 ms of 10 s are 0.5 %"

    async def waits(request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        nonlocal clock_ns
        ticking = asyncio.ensure_future(asyncio.sleep(0))
        ticking.add_done_callback(tick)
        await ticking
        return admin_pb2.CreateTopicsResponse()

    def tick(_: object) -> None:
        nonlocal clock_ns
        clock_ns += 10**12

    inside.forwarder.answers["CreateTopics"] = waits
    client = Client(inside, {EVERY_CLIENT: {"request_percentage": 0.4}})
    await client.ask(CREATE, 5, creating(new("a")))
    assert client.muted_ms == 0


@pytest.mark.parametrize(
    ("key", "version", "permissive"),
    [
        (CREATE, 5, True),
        (CREATE, 6, False),
        (DELETE, 4, True),
        (DELETE, 5, False),
        (ADD, 2, True),
        (ADD, 3, False),
    ],
)
async def test_q4_only_new_versions_may_be_refused_and_all_are_muted(
    inside: FakeBrokerInside, key: int, version: int, permissive: bool
) -> None:
    rpc, answer_type, values = {
        CREATE: ("CreateTopics", admin_pb2.CreateTopicsResponse, creating(new("a"))),
        DELETE: (
            "DeleteTopics",
            admin_pb2.DeleteTopicsResponse,
            {"topic_names": ["a"], "timeout": 1000},
        ),
        ADD: (
            "CreatePartitions",
            admin_pb2.CreatePartitionsResponse,
            {
                "topics": [{"name": "a", "count": 2, "assignments": None}],
                "timeout": 1000,
                "validate_only": False,
            },
        ),
    }[key]

    async def refused(_request: object) -> Any:  # noqa: ANN401
        result = admin_pb2.TopicResult(
            name="a",
            error_code=errors_pb2.THROTTLING_QUOTA_EXCEEDED,
            error_message="over",
        )
        return answer_type(topics=[result], throttle_time_ms=7_000)

    inside.forwarder.answers[rpc] = refused
    client = Client(inside, {})
    response = await client.ask(key, version, values)
    (asked,) = inside.forwarder.asked[rpc]
    assert asked.context.accept_over_quota is permissive
    assert throttle_ms(response) == client.muted_ms == 7_000
    (told,) = {CREATE: "topics", DELETE: "responses", ADD: "results"}[key].split()
    (item,) = getattr(response, told)
    assert item.error_code == errors_pb2.THROTTLING_QUOTA_EXCEEDED
    if (key, version) != (DELETE, 4):
        assert item.error_message == "over"


@pytest.mark.parametrize(("version", "waits"), [(5, True), (6, False)])
async def test_q4_an_old_client_that_connects_anew_waits_and_a_new_one_is_refused_at_once(
    inside: FakeBrokerInside, version: int, waits: bool
) -> None:
    async def over(_request: object) -> admin_pb2.CreateTopicsResponse:
        return admin_pb2.CreateTopicsResponse(throttle_time_ms=7_000)

    inside.forwarder.answers["CreateTopics"] = over
    client = Client(inside, {EVERY_CLIENT: {"controller_mutation_rate": 1.0}})
    await client.ask(CREATE, version, creating(new("a")))
    assert client.muted_ms == 7_000
    client.now_ms += 1_000
    assert client.waits_ms(CREATE, version, creating(new("a"))) == (6_000 if waits else 0)
    assert client.waits_ms(METADATA, 9, ASKING) == 0


async def test_q11_the_more_constraining_of_two_quotas_counts(inside: FakeBrokerInside) -> None:
    times_ms = iter((7_000, 1))

    async def throttling(_request: object) -> admin_pb2.CreateTopicsResponse:
        return admin_pb2.CreateTopicsResponse(throttle_time_ms=next(times_ms))

    inside.forwarder.answers["CreateTopics"] = throttling
    client = Client(inside, {EVERY_CLIENT: {"request_percentage": 1e-9}})
    for longest in (7_000, 1_000):
        response = await client.ask(CREATE, 6, creating(new("a")))
        assert throttle_ms(response) == client.muted_ms == longest


async def test_answers_without_room_for_it_are_left_as_they_are(inside: FakeBrokerInside) -> None:
    client = Client(inside, {EVERY_CLIENT: {"request_percentage": 1e-9}})
    for version in (0, 3):
        await client.ask(18, version, {"client_software_name": "x", "client_software_version": "1"})
        assert client.muted_ms == 1_000
