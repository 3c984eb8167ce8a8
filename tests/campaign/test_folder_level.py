"""Damaged data folders are the same, healed, or refused with advice: never silently different."""

import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.mutants import MUTANTS
from tests.campaign.outcome import ALLOWED, Outcome

CASES = int(os.environ.get("QUORATE_CAMPAIGN_CASES", "10000"))
SHORT_CASES = 100
SEED = int(os.environ.get("QUORATE_CAMPAIGN_SEED", "0"))


def run_campaign(tmp_path: Path, *arguments: object) -> tuple[str, list[dict[str, Any]]]:
    """Run the campaign as a process, which may fork; return what it said, and its cases."""
    document = tmp_path / "cases.json"
    seed = SEED or secrets.randbelow(2**31)
    given = ["--seed", seed, "--json", document, *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign", *map(str, given)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert document.exists(), done.stderr
    return done.stdout, json.loads(document.read_bytes())["cases"]


def outcomes(cases: list[dict[str, Any]]) -> Counter[str]:
    return Counter(case["verdict"]["outcome"] for case in cases)


@pytest.mark.timeout(300)
def test_some_damage_of_a_folder_is_not_silent(tmp_path: Path) -> None:
    said, cases = run_campaign(tmp_path, "--cases", SHORT_CASES, "--jobs", 2)
    assert not outcomes(cases).keys() - {each.value for each in ALLOWED}, said


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_no_damage_of_a_folder_is_silent(tmp_path: Path) -> None:
    said, cases = run_campaign(tmp_path, "--cases", CASES, "--jobs", 2)
    assert not outcomes(cases).keys() - {each.value for each in ALLOWED}, said


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_missing_check_is_noticed(tmp_path: Path, name: str) -> None:
    node = MUTANTS[name].node
    _, cases = run_campaign(tmp_path, "--cases", 30, "--node", node, "--without", name)
    assert outcomes(cases)[Outcome.DIFFERENT.value] > 0
