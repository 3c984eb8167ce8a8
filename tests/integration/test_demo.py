"""The demo as a newcomer runs it; it takes a Spark session, so it is not part of the quick run."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder with a short path: Spark binds Unix sockets below it, whose paths are limited."""
    with tempfile.TemporaryDirectory(prefix="d", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.timeout(400)
def test_the_demo_loses_nothing_and_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
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
