"""The figures that every benchmark publishes: percentiles, and medians of repetitions."""

import pytest

from bench._support import Bench, percentile


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0, 1), (0.5, 50), (0.501, 51), (0.99, 99), (0.999, 100), (1, 100)]
)
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(fraction: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), fraction) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_each_figure_is_the_median_of_its_own_repetitions() -> None:
    samples = iter(
        [{"ops/s": 1.0, "ms": 30.0}, {"ops/s": 9.0, "ms": 10.0}, {"ops/s": 2.0, "ms": 5.0}]
    )
    bench = Bench("Any", quick=False, json_path=None, repetitions=3)
    assert bench.repeat(lambda: next(samples)) == {"ops/s": 2.0, "ms": 10.0}
