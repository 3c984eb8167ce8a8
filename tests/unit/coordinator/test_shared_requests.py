"""What gathers for one broker goes together, and nobody is kept by what takes long."""

import asyncio
from collections.abc import Sequence

import pytest

from quorate.broker.coordinator.shards.shared_requests import (
    IN_FLIGHT_MAX,
    ITEMS_MAX,
    SharedRequests,
)
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time

FAILED: int = errors_pb2.UNKNOWN_SERVER_ERROR


class Broker:
    """Takes a while, and answers each number with itself."""

    def __init__(self, takes_s: float = 1.0) -> None:
        self.asked: list[Sequence[int]] = []
        self.takes_s = takes_s
        self.fails: Exception | None = None
        self.requests = SharedRequests(self.ask, FAILED)

    async def ask(self, numbers: Sequence[int]) -> list[int]:
        self.asked.append(numbers)
        await pass_time(self.takes_s)
        if self.fails is not None:
            raise self.fails
        return list(numbers)


async def test_what_is_asked_in_one_turn_is_one_request() -> None:
    broker = Broker()
    outcomes = [broker.requests.add(number) for number in range(5)]
    assert await asyncio.gather(*outcomes) == [0, 1, 2, 3, 4]
    assert broker.asked == [[0, 1, 2, 3, 4]]


async def test_a_slow_request_does_not_keep_the_next_ones_until_there_are_many() -> None:
    broker = Broker(takes_s=10.0)
    outcomes = []
    for number in range(IN_FLIGHT_MAX + 3):
        outcomes.append(broker.requests.add(number))
        await pass_time(0.01)
    assert broker.asked == [[number] for number in range(IN_FLIGHT_MAX)]
    await asyncio.gather(*outcomes)
    rest = list(range(IN_FLIGHT_MAX, IN_FLIGHT_MAX + 3))
    assert broker.asked[IN_FLIGHT_MAX:] == [rest], "what waited goes together"


async def test_a_request_has_an_upper_limit() -> None:
    broker = Broker()
    outcomes = [broker.requests.add(number) for number in range(ITEMS_MAX + 1)]
    await asyncio.gather(*outcomes)
    assert [len(items) for items in broker.asked] == [ITEMS_MAX, 1]


async def test_whoever_gave_up_in_time_is_not_asked_about() -> None:
    broker = Broker()
    gone, stays = broker.requests.add(1), broker.requests.add(2)
    gone.cancel()
    assert await stays == 2
    assert broker.asked == [[2]]


async def test_a_fault_of_ours_reaches_everybody_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.fails = RuntimeError("boom")
    outcomes = [broker.requests.add(number) for number in (1, 2)]
    assert await asyncio.gather(*outcomes) == [errors_pb2.UNKNOWN_SERVER_ERROR] * 2
    assert "boom" in caplog.text


async def test_an_answer_of_the_wrong_length_is_a_fault() -> None:
    async def too_few(numbers: Sequence[int]) -> list[int]:
        return []

    assert await SharedRequests(too_few, FAILED).add(1) == errors_pb2.UNKNOWN_SERVER_ERROR


async def test_closed_it_keeps_nobody_waiting() -> None:
    broker = Broker(takes_s=3600)
    sent = broker.requests.add(1)
    await pass_time(0.01)
    gathered = broker.requests.add(2)
    broker.requests.close()
    for outcome in (sent, gathered):
        with pytest.raises(asyncio.CancelledError):
            await outcome
