"""What the check before a release decides, without building or installing anything."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.release_check import environments, report
from tests.release_check.environments import (
    CommandFailed,
    clean_environment,
    find_pythons,
    pyenv_folder,
    run,
)
from tests.release_check.quick_start import DOWN, STEPS, UP, WrongOutput, run_quick_start
from tests.release_check.report import Outcome
from tests.release_check.versions import disagreements, project_version
from tests.support.guide import ROOT

HEAD = "c0ffee"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.3.0"\n')
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "quorate"\nversion = "0.3.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 0.3.0 - 2027-01-02\n\n## 0.2.0\n")
    return tmp_path


def test_versions_that_agree_are_fine(checkout: Path) -> None:
    assert disagreements(checkout, {"0.2.0": "older", "0.3.0": HEAD}, HEAD) == []


def test_this_checkout_agrees_with_itself() -> None:
    version = project_version(ROOT)
    assert disagreements(ROOT, {}, HEAD) == []
    assert version in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("uv.lock", '[[package]]\nname = "quorate"\nversion = "0.2.0"\n', "uv.lock has 0.2.0"),
        ("CHANGELOG.md", "## Unreleased\n\n## 0.2.0 - 2026-11-27\n", "Unreleased, 0.2.0"),
        ("CHANGELOG.md", "## 0.3.0 - 2027-01-02\n", "0.3.0"),
    ],
)
def test_a_file_with_another_version_is_named(
    checkout: Path, file: str, content: str, named: str
) -> None:
    (checkout / file).write_text(content)
    (found,) = disagreements(checkout, {}, HEAD)
    assert named in found


def test_a_tag_on_another_commit_is_named(checkout: Path) -> None:
    (found,) = disagreements(checkout, {"0.3.0": "beef"}, HEAD)
    assert "beef" in found
    assert HEAD in found


def test_programs_get_nothing_that_leads_to_a_checkout() -> None:
    given = {"PATH": "/bin", "PYTHONPATH": "/src", "QUORATE_DATA": "/data", "UV_CACHE_DIR": "/uv"}
    assert clean_environment(given) == {"PATH": "/bin", "UV_CACHE_DIR": "/uv"}


def test_a_program_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    program = "import sys; print('out'); sys.exit('reason')"
    with pytest.raises(CommandFailed, match=r"exit code 1\nout\nreason"):
        run([sys.executable, "-c", program], tmp_path)


def test_a_python_that_cannot_be_had_is_absent_and_is_fetched_before_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def uv(command: Sequence[str | Path], folder: Path) -> str:
        words = list(map(str, command[1:]))
        asked.append(words)
        if "3.13" in words or (words[-1] == "3.12" and ["python", "install", "3.12"] not in asked):
            raise CommandFailed(" ".join(words))
        return f"/pythons/{words[-1]}\n"

    monkeypatch.setattr(environments, "run", uv)
    found = find_pythons(Path("uv"), ("3.11", "3.12", "3.13"), tmp_path, tmp_path)
    assert found == {"3.11": Path("/pythons/3.11"), "3.12": Path("/pythons/3.12"), "3.13": None}
    assert ["python", "install", "3.11"] not in asked
    assert report.absent(found)[0].endswith(": 3.13")
    assert report.absent({"3.11": Path("/pythons/3.11")}) == []


def test_a_python_of_pyenv_is_found_where_it_is_not_the_chosen_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uv(command: Sequence[str | Path], folder: Path) -> str:
        raise CommandFailed("a shim of pyenv")

    monkeypatch.setattr(environments, "run", uv)
    for release in ("3.12.1", "3.12.7", "3.11.2"):
        (tmp_path / "versions" / release / "bin").mkdir(parents=True)
        (tmp_path / "versions" / release / "bin" / f"python{release[:4]}").touch()
    found = find_pythons(Path("uv"), ("3.12", "3.13"), tmp_path, tmp_path)
    assert found == {"3.12": tmp_path / "versions/3.12.7/bin/python3.12", "3.13": None}
    assert pyenv_folder({"PYENV_ROOT": "/pyenv"}) == Path("/pyenv")


class Commands:
    """Answers the commands of the quick start as an installed Quorate does."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.answers = {" ".join(step.words): " ".join(step.prints) for step in (*STEPS, DOWN)}
        self.answers["--version"] = "quorate, version 0.3.0"

    def __call__(self, command: Sequence[str | Path], folder: Path, *, stdin: str = "") -> str:
        words = " ".join(map(str, command[1:]))
        self.ran.append(words.split()[0])
        if words.startswith("up"):
            return json.dumps({"brokers": [1, 2, 3]})
        return self.answers[words]


def test_the_quick_start_runs_in_order(tmp_path: Path) -> None:
    commands = Commands()
    assert run_quick_start(tmp_path, "0.3.0", tmp_path, commands) >= 0
    assert commands.ran == ["--version", "up", "topics", "produce", "consume", "status", "down"]


def test_a_lost_record_fails_the_quick_start_and_the_cluster_is_stopped(tmp_path: Path) -> None:
    commands = Commands()
    consume = next(words for words in commands.answers if words.startswith("consume"))
    commands.answers[consume] = "one"
    with pytest.raises(WrongOutput, match="without two"):
        run_quick_start(tmp_path, "0.3.0", tmp_path, commands)
    assert commands.ran[-1] == "down"


def test_an_environment_with_another_version_fails_before_anything_starts(tmp_path: Path) -> None:
    commands = Commands()
    with pytest.raises(WrongOutput, match=re.escape("without 0.4.0")):
        run_quick_start(tmp_path, "0.4.0", tmp_path, commands)
    assert commands.ran == ["--version"]


def test_the_steps_are_those_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for step in (UP, *STEPS, DOWN):
        assert f"quorate {' '.join(step.words)}" in readme


def test_the_table_says_what_failed_and_the_tag_is_named() -> None:
    lines = report.table([Outcome("3.11", "a.whl", 1.25, ""), Outcome("3.12", "a.whl", 0, "why")])
    assert [line.split()[:3] for line in lines[1:]] == [
        ["3.11", "a.whl", "works"],
        ["3.12", "a.whl", "fails"],
    ]
    tagging = report.next_steps("0.3.0", HEAD, tagged=False, clean=True)
    assert any(f"git tag -a 0.3.0 -m 'Quorate 0.3.0' {HEAD}" in line for line in tagging)
    assert report.next_steps("0.3.0", HEAD, tagged=True, clean=True) == ["0.3.0 is tagged."]


def test_nothing_is_tagged_that_is_not_committed() -> None:
    (line,) = report.next_steps("0.3.0", HEAD, tagged=False, clean=False)
    assert "git tag" not in line


@pytest.mark.slow
@pytest.mark.integration
def test_the_quick_start_works_in_an_empty_environment_of_this_python() -> None:
    """It asks the index of packages: it belongs to ``make release-check``, and to ``make soak``."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.release_check", "--python", version],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("works") == 2
