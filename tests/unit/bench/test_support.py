"""The figures that every benchmark publishes: percentiles, and medians of repetitions."""

import json
from pathlib import Path

import pytest

from bench._support import Bench, percentile
from bench._yardstick import Yardstick, measure_yardstick


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


def test_a_run_prints_and_keeps_the_yardstick_of_its_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yardstick = Yardstick(python_loop_ms=16.04, memcpy_gb_per_s=14.8, fdatasync_ms=0.146)
    monkeypatch.setattr("bench._support.measure_yardstick", lambda: yardstick)
    report = tmp_path / "report.json"
    Bench.from_command_line("Any", "of any kind", ["--json", str(report)]).finish()
    line = "yardstick: Python loop 16.0 ms, memcpy 14.8 GB/s, fdatasync 0.15 ms\n"
    assert line in capsys.readouterr().out
    assert json.loads(report.read_text())["yardstick"] == yardstick._asdict()


@pytest.mark.parametrize(
    ("flags", "expected"), [([], 5), (["--quick"], 1), (["--quick", "--repeat", "2"], 2)]
)
def test_a_bench_says_how_often_it_measures_unless_the_command_line_does(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], expected: int
) -> None:
    monkeypatch.setattr("bench._support.measure_yardstick", lambda: Yardstick(1.0, 1.0, 1.0))
    bench = Bench.from_command_line("Any", "of any kind", flags, repetitions=5)
    assert bench.repetitions == expected


def test_the_yardstick_measures_this_machine() -> None:
    assert all(figure > 0 for figure in measure_yardstick())
