"""The demo as a newcomer runs it; it takes a Spark session, so it is not part of the quick run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(400)
def test_the_demo_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    source, scratch = tmp_path / "source", tmp_path / "scratch"
    source.mkdir()
    scratch.mkdir()
    (source / "a.txt").write_text("line\n" * 3_000)
    (source / "b.md").write_text("\n" * 1_000)
    done = subprocess.run(
        [sys.executable, "-m", "quorate.demo"],
        env={**os.environ, "DEMO_INPUT": str(source), "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
        cwd=scratch,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"took over as controller \d+ ms after the kill \(epoch 1 → 2\)", done.stdout)
    assert re.search(r"\.txt +3000\n +\.md +1000\n", done.stdout)
    last = done.stdout.rstrip().splitlines()[-1]
    assert last == "4000 produced, 4000 acknowledged, 4000 read by Spark, 0 lost"
    assert [path.name for path in scratch.iterdir() if path.name.startswith("quorate")] == []
