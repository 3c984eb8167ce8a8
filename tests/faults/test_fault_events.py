"""A hundred faults of every kind: nothing acknowledged is lost, and no reader sees an end fall."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.network_lab import why_not

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(3_600)]

EVENTS = int(os.environ.get("QUORATE_FAULT_EVENTS", "100"))
SEED = int(os.environ.get("QUORATE_FAULT_SEED", "0"))


def test_d1_d3_faults_of_every_kind_lose_nothing_acknowledged() -> None:
    """The events run in a process of their own, which enters a network namespace."""
    if reason := why_not():
        pytest.skip(reason)
    seed = SEED or secrets.randbelow(2**31)
    command = [sys.executable, "-m", "tests.faults", "--events", str(EVENTS), "--seed", str(seed)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
