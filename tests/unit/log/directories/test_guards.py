"""Every guard of several log folders has a test that fails without it."""

import subprocess
import sys
from pathlib import Path

import pytest

_PROVE = """
from tests.ledger import guards_of_log_folders, guards_of_offline_replicas
from tests.ledger.proof import caught
mutants = guards_of_log_folders.MUTANTS + guards_of_offline_replicas.MUTANTS
problems = {name: problem for name, problem in caught(mutants).items() if problem}
raise SystemExit("; ".join(f"{name}: {problem}" for name, problem in problems.items()) or None)
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_every_missing_guard_is_noticed() -> None:
    """In a process of its own: the guards of this one stay."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROVE],
        cwd=Path(__file__).resolve().parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
