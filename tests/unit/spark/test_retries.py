"""Pauses double up to two seconds; the budget is of tries in a row."""

import pytest

from quorate.spark.errors import ClusterUnavailable
from quorate.spark.retries import Retries


def test_pauses_double_and_end() -> None:
    slept: list[float] = []
    retries = Retries(6, 100, slept.append)
    for _ in range(6):
        retries.pause("asking", "nobody answers")
    assert slept == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    with pytest.raises(ClusterUnavailable, match="asking failed 7 times in a row: nobody answers"):
        retries.pause("asking", "nobody answers")


def test_progress_makes_the_budget_whole() -> None:
    slept: list[float] = []
    retries = Retries(2, 100, slept.append)
    for _ in range(5):
        retries.pause("asking", "nobody answers")
        retries.progress()
    assert slept == [0.1] * 5


def test_without_retries_the_first_failure_is_final() -> None:
    with pytest.raises(ClusterUnavailable):
        Retries(0, 100, lambda _: None).pause("asking", "nobody answers")
