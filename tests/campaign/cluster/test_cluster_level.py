"""One damaged folder costs a cluster nothing that it has acknowledged."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.outcome import ALLOWED

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(3_000)]

CASES = int(os.environ.get("QUORATE_CLUSTER_CASES", "200"))
SEED = int(os.environ.get("QUORATE_CAMPAIGN_SEED", "0"))


def test_d1_one_damaged_folder_loses_nothing_acknowledged(tmp_path: Path) -> None:
    document = tmp_path / "cases.json"
    seed = SEED or secrets.randbelow(2**31)
    command = [sys.executable, "-m", "tests.campaign.cluster", "--cases", str(CASES)]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--json", str(document)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert document.exists(), done.stderr
    found = {case["verdict"]["outcome"] for case in json.loads(document.read_bytes())["cases"]}
    assert not found - {each.value for each in ALLOWED}, done.stdout
