"""New connections wait their turn at the rate of their address and of the broker (KIP-612)."""

from collections.abc import Mapping

import pytest

from quorate.broker.quota import connection_rates
from quorate.broker.quota.connection_rates import DELAY_MAX_MS, UNLIMITED_RATE, ConnectionRates
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.metadata_log.client_quotas import ClientQuotaEntity

RATE = "connection_creation_rate"
ONE, OTHER = "10.0.0.1", "10.0.0.2"


class Broker:
    """New connections of one broker, whose windows are two seconds together."""

    def __init__(
        self, quotas: Mapping[str, float] | None = None, *, rate: int = UNLIMITED_RATE
    ) -> None:
        self.now_ms = 0.0
        self.rate = rate
        self.rates = ConnectionRates(QuotaWindow(2, 1), lambda: self.now_ms, lambda: self.rate)
        self.rates.set_quotas(
            {ClientQuotaEntity(ip=ip): {RATE: value} for ip, value in (quotas or {}).items()}
        )

    def delays_ms(self, count: int, host: str = ONE) -> list[int]:
        return [self.rates.admit(host).delay_ms for _ in range(count)]


def test_without_limits_nobody_waits_or_is_remembered() -> None:
    broker = Broker()
    assert set(broker.delays_ms(1_000)) == {0}
    assert not broker.rates._buckets


def test_an_address_waits_its_turn_and_others_do_not() -> None:
    broker = Broker({"": 2.0})
    assert broker.delays_ms(6) == [0, 0, 0, 0, 500, 1_000]
    assert broker.delays_ms(4, OTHER) == [0, 0, 0, 0]
    broker.now_ms = 1_000
    assert broker.delays_ms(1) == [500]
    assert broker.rates.throttled == {"broker": 0, "ip": 3}


def test_an_address_of_its_own_quota_does_not_have_the_default() -> None:
    broker = Broker({"": 2.0, ONE: 100.0})
    assert set(broker.delays_ms(200)) == {0}
    assert broker.delays_ms(5, OTHER)[-1] > 0
    broker = Broker({ONE: 1.0})
    assert broker.delays_ms(3)[-1] > 0
    assert set(broker.delays_ms(100, OTHER)) == {0}


def test_an_ipv6_network_shares_the_default_and_ipv4_is_known_behind_ipv6() -> None:
    broker = Broker({"": 1.0, ONE: 100.0})
    for number in range(2):
        assert broker.delays_ms(1, f"2001:db8::{number}") == [0]
    assert broker.delays_ms(1, "2001:db8::9") == [1_000]
    assert set(broker.delays_ms(50, f"::ffff:{ONE}")) == {0}


def test_the_rate_of_the_broker_counts_all_addresses() -> None:
    broker = Broker(rate=1)
    assert broker.delays_ms(2) == [0, 0]
    assert broker.delays_ms(2, OTHER) == [1_000, 2_000]
    assert broker.rates.throttled == {"broker": 2, "ip": 0}
    broker.rate = 1_000
    assert broker.delays_ms(1) == [3], "a debt stays, and is paid at the new rate"


def test_who_would_wait_for_too_long_is_refused_and_delays_nobody() -> None:
    broker = Broker({"": 1.0})
    delays = [broker.rates.admit(ONE) for _ in range(100)]
    waiting = [one for one in delays if not one.is_refused]
    assert len(waiting) == 2 + DELAY_MAX_MS // 1_000
    assert delays[-1].limit == f"{RATE}=1 of {ONE}"
    broker.now_ms = 1_000
    assert not broker.rates.admit(ONE).is_refused


def test_the_number_of_those_that_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "WAITING_MAX", 1)
    broker = Broker({"": 1.0})
    broker.delays_ms(2)
    assert not broker.rates.admit(ONE).is_refused
    broker.rates.waiting = 1
    assert broker.rates.admit(ONE).is_refused


def test_many_addresses_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "CACHED_ADDRESSES_MAX", 10)
    broker = Broker({"": 1.0})
    broker.rates._buckets_max = 10
    for number in range(1_000):
        broker.now_ms += 1_000
        broker.rates.admit(f"10.0.{number // 250}.{number % 250}")
    assert len(broker.rates._buckets) <= 11
    broker.rates.set_quotas({})
    assert not broker.rates._buckets
