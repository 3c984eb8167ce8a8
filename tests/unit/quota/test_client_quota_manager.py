import asyncio

import pytest

from quorate.broker.quota import client_quota_manager
from quorate.broker.quota.client_quota_manager import (
    NO_LIMITS,
    ClientLimit,
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
        limit: ClientLimit | None = self.quotas.limits_of(user, client_id).produced
        assert limit is not None
        return limit.use(size, self.now_ms)


def test_q11_without_any_quotas_nobody_is_looked_at() -> None:
    assert Broker({}).quotas.limits_of("anna", "a") is NO_LIMITS


def test_q11_others_quotas_do_not_bind() -> None:
    broker = Broker({ClientQuotaEntity(user="berta"): {PRODUCE: 1.0}})
    assert broker.quotas.limits_of("anna", "a") == NO_LIMITS


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
    assert len(broker.quotas._rates) <= 11
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
