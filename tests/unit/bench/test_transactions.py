"""What the benchmark of transactions makes of its figures."""

import pytest

from bench._transactional_load import sizes
from bench.transactions import Case, compared, misses

PLAIN = {"records/s": 1000.0, "servers CPU us/record": 10.0}
OURS = {
    "records/s": 800.0,
    "servers CPU us/record": 12.0,
    "transactions/s": 0.8,
    "commit p50 ms": 5.0,
    "commit p99 ms": 9.0,
}


@pytest.mark.parametrize(
    ("records", "expected"),
    [(1, [1]), (5, [1] * 5), (10, [2, 2, 2, 2, 1, 1]), (1_000, [167] * 4 + [166] * 2)],
)
def test_every_record_goes_to_a_partition(records: int, expected: list[int]) -> None:
    assert sizes(records, 6) == expected
    assert sum(expected) == records


def test_overhead_is_what_is_lost_of_the_plain_throughput_and_added_to_its_cost() -> None:
    row = compared(PLAIN, OURS)
    assert (row["overhead %"], row["CPU overhead %"]) == pytest.approx((20, 20))
    assert row["plain records/s"] == 1000


def test_the_goal_is_one_of_transactions_of_a_thousand_records() -> None:
    slow = compared(PLAIN, {**OURS, "records/s": 700.0})
    assert not list(misses(Case(1, 1_000), {"quorate": compared(PLAIN, OURS)}))
    assert not list(misses(Case(1, 100), {"quorate": slow}))
    assert list(misses(Case(1, 1_000), {"quorate": slow})) == [
        "1 producers, 1000 records: overhead 30 %, the goal is 25 %"
    ]


@pytest.mark.parametrize(
    ("figure", "better"), [("transactions/s", 2.0), ("commit p99 ms", 1.0), ("records/s", 1e9)]
)
def test_where_kafka_is_ahead_is_said(figure: str, better: float) -> None:
    ours = compared(PLAIN, OURS)
    (line,) = misses(Case(1, 10), {"quorate": ours, "Kafka": {**ours, figure: better}})
    assert figure in line
