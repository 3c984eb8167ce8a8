"""What users have used of their quotas, and how long they waited, as metrics in bounded numbers."""

from quorate.broker.quota.client_quota_manager import ClientQuotaManager
from quorate.broker.quota.quota_totals import (
    OVERFLOW,
    QUOTA_THROTTLED,
    QUOTA_USED,
    USERS_SHOWN_MAX,
    TotalsByUser,
)
from quorate.broker.quota.windowed_rate import QuotaWindow
from quorate.common.metrics.family import Family
from quorate.metadata_log.client_quotas import ClientQuotaEntity

PRODUCE = "producer_byte_rate"


def shown(totals: TotalsByUser, family: Family) -> dict[tuple[str, ...], object]:
    return {one.labels: one.value for one in totals.samples() if one.family is family}


def test_bytes_and_mutes_are_counted_by_user() -> None:
    quotas = ClientQuotaManager(
        QuotaWindow(11, 1), lambda: 0.0, {ClientQuotaEntity(user=""): {PRODUCE: 10.0}}
    )
    for client_id in ("a", "b"):
        usage = quotas.limits_of("anna", client_id).produced
        assert usage is not None
        usage.use(100, 0.0)
    quotas.limits_of("berta", "a")
    assert shown(quotas.totals, QUOTA_USED) == {(PRODUCE, "anna"): 200, (PRODUCE, "berta"): 0}
    assert shown(quotas.totals, QUOTA_THROTTLED) == {
        (PRODUCE, "anna"): 10.0,
        (PRODUCE, "berta"): 0.0,
    }


def test_a_mute_that_grows_is_counted_once() -> None:
    quotas = ClientQuotaManager(
        QuotaWindow(11, 1), lambda: 0.0, {ClientQuotaEntity(user="anna"): {PRODUCE: 10.0}}
    )
    usage = quotas.limits_of("anna", "").produced
    assert usage is not None
    usage.mute(1_000, 0.0)
    usage.mute(500, 0.0)
    usage.mute(1_000, 500.0)
    assert shown(quotas.totals, QUOTA_THROTTLED) == {(PRODUCE, "anna"): 1.5}


def test_users_beyond_a_limit_are_counted_together() -> None:
    totals = TotalsByUser()
    for number in range(USERS_SHOWN_MAX + 2):
        totals.of(PRODUCE, f"user {number}").used += 1
    totals.of(PRODUCE, "user 0").used += 1
    used = shown(totals, QUOTA_USED)
    assert used[PRODUCE, "user 0"] == 2
    assert used[PRODUCE, OVERFLOW] == 2
    assert len(used) == USERS_SHOWN_MAX + 1
