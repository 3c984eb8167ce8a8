"""A write counts when it is acknowledged, and a failed one fails the measurement."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.peers.closed_loop import Done, await_writes, call_back_writes
from bench.peers.contender import KEYS, VALUE_BYTES, key, value
from bench.peers.etcd_client import put_request, txn_request

FAILS_AT = 7


def test_writes_that_call_back_are_counted_one_by_one() -> None:
    started: list[int] = []
    with ThreadPoolExecutor(max_workers=1) as library:

        def write(number: int, done: Done) -> None:
            started.append(number)
            library.submit(done, None)

        latencies_ms = call_back_writes(write, seconds=0.01, in_flight=3)
    assert len(latencies_ms) == len(started) > 0
    assert started == list(range(len(started)))


def test_a_write_that_calls_back_with_a_failure_ends_the_measurement() -> None:
    with ThreadPoolExecutor(max_workers=1) as library:

        def write(number: int, done: Done) -> None:
            library.submit(done, ConnectionError("refused") if number == FAILS_AT else None)

        with pytest.raises(ConnectionError, match="refused"):
            call_back_writes(write, seconds=5, in_flight=2)


async def test_an_awaited_write_that_fails_ends_the_measurement() -> None:
    async def write(number: int) -> None:
        if number == FAILS_AT:
            raise ConnectionError("refused")
        await asyncio.sleep(0)

    with pytest.raises(ExceptionGroup) as raised:
        await await_writes(write, seconds=5, in_flight=2)
    assert raised.group_contains(ConnectionError)


def test_all_write_keys_of_20_and_values_of_200_bytes() -> None:
    assert {len(key(number).encode()) for number in (0, KEYS - 1, 10**9)} == {20}
    assert {len(value(number).encode()) for number in (0, KEYS - 1, 10**9)} == {VALUE_BYTES}


def test_etcd_requests_are_protobuf() -> None:
    put = put_request("k", "v" * 200)
    assert put == b"\x0a\x01k\x12\xc8\x01" + b"v" * 200
    assert txn_request([put, put]) == (b"\x12\xd1\x01\x12\xce\x01" + put) * 2
