"""Logins are hashed in turns: addresses first, then the users of an address, and none for ever."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import pytest

from quorate.broker.metrics.client_metrics import ClientFigures
from quorate.broker.security.fair_queue import FairQueue
from quorate.broker.security.login_queue import THREADS, LoginQueue, TooManyLogins
from quorate.common.network_address import network_of

ATTACKER, OTHER = "10.0.0.66", "10.0.0.9"


def taken(queue: FairQueue[str]) -> list[str]:
    return [queue.take() for _ in range(len(queue))]


def test_one_attempt_from_elsewhere_is_next_however_many_wait() -> None:
    queue = FairQueue[str]()
    for number in range(20):
        assert queue.put(ATTACKER, "root", f"attack {number}") is None
    assert queue.put(OTHER, "anna", "anna") is None
    assert taken(queue)[:3] == ["attack 0", "anna", "attack 1"]


def test_another_user_behind_the_same_address_is_next_likewise() -> None:
    queue = FairQueue[str]()
    for number in range(20):
        queue.put(ATTACKER, "root", f"attack {number}")
    queue.put(ATTACKER, "anna", "anna")
    assert taken(queue)[:2] == ["attack 0", "anna"]


def test_an_address_has_a_bounded_number_of_places() -> None:
    queue = FairQueue[str](waiting_max=9, address_max=2)
    assert queue.put(ATTACKER, "root", "a") is None
    assert queue.put(ATTACKER, "root", "b") is None
    assert queue.put(ATTACKER, "root", "c") == "c"
    assert queue.put(ATTACKER, "anna", "anna") == "b", "who has most makes room"
    assert taken(queue) == ["a", "anna"]


def test_a_full_queue_makes_room_at_the_address_that_has_most() -> None:
    queue = FairQueue[str](waiting_max=3, address_max=3)
    for item in "abc":
        queue.put(ATTACKER, "root", item)
    assert queue.put(OTHER, "anna", "anna") == "c"
    assert len(queue) == 3
    assert taken(queue) == ["a", "anna", "b"]


def test_with_one_place_each_the_newest_address_is_turned_away() -> None:
    queue = FairQueue[str](waiting_max=2)
    assert [queue.put(f"10.0.0.{n}", "x", f"{n}") for n in range(3)] == [None, None, "2"]


def test_removed_items_leave_nothing_behind() -> None:
    queue = FairQueue[str]()
    queue.put(OTHER, "anna", "a")
    queue.remove(OTHER, "anna", "a")
    queue.remove(OTHER, "anna", "a")
    assert len(queue) == 0
    assert not queue._addresses
    assert not queue._counts


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.9", "10.0.0.9"),
        ("2001:db8:1:2:3::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
        ("unix:", "unix:"),
    ],
)
def test_the_addresses_of_one_ipv6_network_count_as_one(address: str, network: str) -> None:
    assert network_of(address) == network


class Threads:
    """An executor whose work the test finishes."""

    def __init__(self) -> None:
        self.works: list[concurrent.futures.Future[Any]] = []

    def submit(self, _work: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        self.works.append(concurrent.futures.Future())
        return self.works[-1]


def started(queue: LoginQueue, address: str, user: str = "root") -> asyncio.Task[str]:
    return asyncio.ensure_future(queue.run(address, user, lambda: "done"))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_run_at_once_than_there_are_threads() -> None:
    threads = Threads()
    queue = LoginQueue(threads)  # type: ignore[arg-type]
    logins = [started(queue, ATTACKER) for _ in range(5)]
    await settle()
    assert (len(threads.works), queue.waiting) == (THREADS, 5 - THREADS)
    for number in range(5):
        threads.works[number].set_result("done")
        await settle()
    assert [await login for login in logins] == ["done"] * 5
    assert (queue.waiting, queue._running) == (0, 0)


async def test_who_is_turned_away_is_told_and_the_others_run() -> None:
    threads = Threads()
    queue = LoginQueue(threads)  # type: ignore[arg-type]
    logins = [started(queue, ATTACKER) for _ in range(THREADS + 33)]
    await settle()
    assert isinstance(logins[-1].exception(), TooManyLogins)
    figures = ClientFigures()
    figures.logins += [queue, LoginQueue()]
    shown = {sample.family.name: sample.value for sample in figures.samples()}
    assert shown["quorate_logins_waiting"] == 32
    assert shown["quorate_logins_refused_total"] == 1
    for number in range(THREADS + 32):
        threads.works[number].set_result("done")
        await settle()
    assert all(login.done() for login in logins)


async def test_who_goes_while_waiting_makes_room_and_costs_no_hashing() -> None:
    threads = Threads()
    queue = LoginQueue(threads)  # type: ignore[arg-type]
    logins = [started(queue, ATTACKER) for _ in range(THREADS + 2)]
    await settle()
    logins[THREADS].cancel()
    await settle()
    assert queue.waiting == 1
    logins[THREADS + 1].cancel()
    threads.works[0].set_result("done")
    await settle()
    threads.works[1].set_result("done")
    await settle()
    assert (len(threads.works), queue.waiting, queue._running) == (THREADS, 0, 0)


async def test_the_turn_of_who_goes_at_that_moment_is_given_to_the_next() -> None:
    threads = Threads()
    queue = LoginQueue(threads)  # type: ignore[arg-type]
    logins = [started(queue, ATTACKER) for _ in range(THREADS + 2)]
    await settle()
    queue._give_turn()
    logins[THREADS].cancel()
    await settle()
    assert len(threads.works) == THREADS + 1


async def test_each_queue_has_threads_of_its_own() -> None:
    blocked = threading.Event()
    kafka, grpc = LoginQueue(), LoginQueue()
    flood = [asyncio.ensure_future(kafka.run(ATTACKER, "x", blocked.wait)) for _ in range(20)]
    await settle()
    assert await asyncio.wait_for(grpc.run(ATTACKER, "x", lambda: "done"), 5) == "done"
    blocked.set()
    await asyncio.gather(*flood)
