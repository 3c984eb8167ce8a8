"""The worst requests of every API do not keep others waiting: ``bench/hostile.py``, in parts."""

import json
from pathlib import Path

import pytest

from bench.hostile import main
from quorate.broker.kafka.api_table import api_table

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SLOW_MACHINE = ("--p99-ms", "60000", "--max-ms", "60000")
"""Tests share their machine with others: how long clients wait is measured by the bench alone."""


def test_requests_that_are_refused_at_once_harm_nobody(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ["--quick", "--api", "describe_cluster", "--seed", "1", "--json", str(figures)]
    assert main([*words, "--at-most", "20", *SLOW_MACHINE]) == 0
    cases = json.loads(figures.read_text())["cases"]
    assert len(cases) == 20
    assert all(case["session kept"] and not case["faults"] for case in cases)
    assert {case["outcome"] for case in cases} >= {"INVALID_REQUEST"}


@pytest.mark.slow
def test_what_exceeds_a_limit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--case", "describe_cluster/1/tags:large/10m/nobody", *SLOW_MACHINE]
    assert main(words) == 0
    assert main([*words, "--p99-ms", "0.001"]) == 1
    assert "tags:large" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("api", [api.name for api in api_table().values()])
def test_the_worst_requests_of_an_api_keep_within_the_limits(api: str) -> None:
    """Every shape of the newest version at 1 MB, and the worst of them over 20 connections."""
    limits = ("--p99-ms", "1000", "--max-ms", "3000")
    assert main(["--api", api, "--newest", "--sizes", "1m", "--seed", "1", *limits]) == 0
