import asyncio

import pytest

from quorate.broker.quota import client_quota_manager
from quorate.broker.quota.client_quota_manager import (
    NO_LIMITS,
    ClientQuotaManager,
    TimedCoroutine,
)
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.metadata_log.client_quotas import ClientQuotaEntity, ClientQuotas

PRODUCE = "producer_byte_rate"


class Broker:
    """The usage of one broker by clients, under quotas and at a time that tests set."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self.now_ms = 0.0
        self.quotas = ClientQuotaManager(QuotaWindow(11, 1), lambda: self.now_ms, quotas)

    def produced(self, size: float, user: str = "anna", client_id: str = "a") -> int:
        usage = self.quotas.limits_of(user, client_id).produced
        assert usage is not None
        return usage.use(size, self.now_ms)


def test_q11_without_any_quotas_nobody_is_looked_at() -> None:
    assert Broker({}).quotas.limits_of("anna", "a") is NO_LIMITS


def test_q11_others_quotas_do_not_bind() -> None:
    broker = Broker({ClientQuotaEntity(user="berta"): {PRODUCE: 1.0}})
    assert broker.quotas.limits_of("anna", "a") is NO_LIMITS


def test_q11_a_users_clients_share_its_quota_and_pairs_do_not() -> None:
    broker = Broker({ClientQuotaEntity(user="anna"): {PRODUCE: 10.0}})
    assert broker.produced(100, client_id="a") == 0
    assert broker.produced(100, client_id="b") == 10_000
    broker = Broker({ClientQuotaEntity("", ""): {PRODUCE: 10.0}})
    assert broker.produced(100, client_id="a") == 0
    assert broker.produced(100, client_id="b") == 0


def test_q11_a_changed_quota_holds_at_once_and_what_was_used_counts() -> None:
    broker = Broker({ClientQuotaEntity(user="anna"): {PRODUCE: 10.0}})
    assert broker.produced(100) == 0
    broker.quotas.set_quotas({ClientQuotaEntity(user="anna"): {PRODUCE: 5.0}})
    assert broker.produced(0) == 10_000
    broker.quotas.set_quotas({})
    assert broker.quotas.limits_of("anna", "a") is NO_LIMITS


def test_q11_made_up_client_ids_do_not_fill_the_memory_nor_get_others_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quota_manager, "CACHED_CLIENTS_MAX", 10)
    broker = Broker({ClientQuotaEntity(client_id=""): {PRODUCE: 10.0}})
    for number in range(1_000):
        broker.now_ms += 2_000
        assert broker.produced(1, client_id=f"made up {number}") == 0
    assert len(broker.quotas._usages) <= 11
    assert len(broker.quotas._limits) <= 11
    broker.produced(1_000, client_id="heavy")
    for number in range(20):
        broker.produced(1, client_id=f"again {number}")
    assert broker.produced(0, client_id="heavy") > 0


async def test_q11_timing_leaves_results_errors_and_cancellation_as_they_are() -> None:
    async def twice(value: int) -> int:
        await asyncio.sleep(0)
        if value < 0:
            raise ValueError(value)
        return 2 * value

    assert await TimedCoroutine(twice(21)) == 42
    with pytest.raises(ValueError, match="-1"):
        await TimedCoroutine(twice(-1))

    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def timed() -> None:
        await TimedCoroutine(waits())

    task = asyncio.ensure_future(timed())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


def test_q5_a_mute_holds_for_all_client_ids_of_a_user_and_for_nobody_else() -> None:
    broker = Broker({ClientQuotaEntity(user="anna"): {PRODUCE: 10.0}})
    broker.produced(1_000, client_id="a")
    quotas = broker.quotas
    for user, client_id, is_muted in (("anna", "b", True), ("berta", "a", False)):
        limits = quotas.limits_of(user, client_id)
        turn = quotas.turn_of(limits, limits.produced)
        assert (turn is not None and turn.wait_ms() > 0) is is_muted


def test_q5_what_is_produced_does_not_mute_who_fetches() -> None:
    broker = Broker({ClientQuotaEntity(user="anna"): {PRODUCE: 10.0, "consumer_byte_rate": 10.0}})
    broker.produced(1_000)
    limits = broker.quotas.limits_of("anna", "a")
    fetching = broker.quotas.turn_of(limits, limits.fetched)
    assert fetching is not None
    assert fetching.wait_ms() == 0
    assert broker.quotas.turn_of(limits, None) is None


def test_q5_time_that_was_used_up_mutes_requests_of_all_kinds() -> None:
    broker = Broker({ClientQuotaEntity(user="anna"): {PRODUCE: 10.0, "request_percentage": 1.0}})
    limits = broker.quotas.limits_of("anna", "a")
    assert limits.time is not None
    assert limits.time.use(5_000, broker.now_ms) == 1_000
    turns = [broker.quotas.turn_of(limits, used) for used in (None, limits.produced)]
    assert all(turn is not None and turn.wait_ms() >= 1_000 for turn in turns)


def test_q11_a_fetch_returns_no_more_than_its_quota_allows_in_the_windows() -> None:
    broker = Broker({ClientQuotaEntity(user="anna"): {"consumer_byte_rate": 1_000.0}})
    assert broker.quotas.limits_of("anna", "a").fetch_bytes_max == 10_000
    assert broker.quotas.limits_of("berta", "a") is NO_LIMITS


def test_q11_many_users_with_quotas_are_not_searched_for_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quota_manager, "CACHED_CLIENTS_MAX", 10)
    broker = Broker({ClientQuotaEntity(user=""): {PRODUCE: 1.0}})
    for number in range(100):
        broker.produced(1_000, user=f"user {number}")
    assert broker.produced(0, user="user 0") > 0, "a user can not be invented, nor forgotten"
    assert broker.quotas._usages_max >= 100
