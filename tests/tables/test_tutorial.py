"""The tutorial of ``docs/TABLES.md``, command by command, as its reader types it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

GUIDE = Path(__file__).parents[2] / "docs" / "TABLES.md"
PORTION = re.compile(r"## Ten minutes\n(.*?)\n## ", re.DOTALL)
SEEN_WITHIN_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(300)]


def run(command: str, folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/bash", "-eu", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    portion = PORTION.search(GUIDE.read_text(encoding="utf-8"))
    assert portion is not None
    blocks = re.findall(r"```(bash|python)\n(.*?)```", portion[1], re.DOTALL)
    assert [language for language, _ in blocks] == ["bash", "bash", "python", *["bash"] * 3]
    try:
        for language, block in blocks:
            if language == "python":
                (tmp_path / "query.py").write_text(block)
                shown = _until_both_rows("python query.py", tmp_path)
                assert "CH" in shown
                assert "JP" in shown
                continue
            for command in block.splitlines():
                run(command, tmp_path)
    finally:
        if (tmp_path / "lake" / "cluster.json").exists():
            run("quorate down --data ./lake", tmp_path)


def _until_both_rows(command: str, folder: Path) -> str:
    """Wait until the table has both rows, then run the query."""
    status = "quorate tables status orders --data ./lake --json"
    wait_until(lambda: '"rows": 2' in run(status, folder), "both rows", timeout_s=SEEN_WITHIN_S)
    return run(command, folder)
