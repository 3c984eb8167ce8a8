"""What the bench of brokers per host makes of its figures."""

from types import SimpleNamespace
from typing import Any

import pytest

from bench.brokers_per_host import FETCH, PRODUCE, gain, load_of, used_percent

ONE = {"MB/s": 20.0, "servers CPU s/GB": 8.0}
TWO = {"MB/s": 38.0, "servers CPU s/GB": 10.0}


def test_the_gain_is_measured_and_by_time() -> None:
    assert gain(ONE, TWO, limited=True) == {"x measured": 1.9, "x by CPU": 1.6}
    assert gain(ONE, TWO, limited=False) == {"x by CPU": 1.6}


@pytest.mark.parametrize(("share", "used"), [(0.2, {"of their CPU %": 80.0}), (None, {})])
def test_brokers_that_use_all_they_may_are_what_is_measured(
    share: float | None, used: dict[str, float]
) -> None:
    hosts: Any = SimpleNamespace(share=share, pids=[1])
    assert used_percent(ONE, hosts) == used


def test_every_broker_has_as_many_partitions() -> None:
    for name in (FETCH, PRODUCE):
        one, two = (load_of(name, brokers, quick=True) for brokers in (1, 2))
        assert two.partitions == 2 * one.partitions
