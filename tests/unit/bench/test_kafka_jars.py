"""Kafka's jars: those of KAFKA_HOME, else those that Maven fetched once into the user's cache."""

import shutil
from pathlib import Path

import pytest

from bench.peers.contender import Unavailable
from bench.peers.kafka import fetched_kafka
from tests.support.kafka_jars import RELEASE, NoKafka, kafka_home

MAVEN = """#!/bin/sh
echo called >> "$XDG_CACHE_HOME/calls"
/bin/mkdir libs
: > libs/kafka_2.13-4.3.1.jar
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose programs are those of its folder ``bin``: a Java, and a Maven."""
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(mode=0o755)
    write_maven(tmp_path, MAVEN)
    return tmp_path


def write_maven(machine: Path, script: str) -> None:
    (machine / "bin" / "mvn").write_text(script)
    (machine / "bin" / "mvn").chmod(0o755)


def test_maven_is_asked_once(machine: Path) -> None:
    assert fetched_kafka().version == RELEASE
    assert fetched_kafka().class_path == f"{kafka_home()}/libs/*"
    assert (machine / "calls").read_text() == "called\n"


def test_what_is_fetched_does_not_need_maven_again(machine: Path) -> None:
    home = kafka_home()
    (machine / "bin" / "mvn").unlink()
    assert kafka_home() == home


def test_kafka_home_goes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HOME", "/opt/kafka")
    assert kafka_home() == Path("/opt/kafka")
    assert not (machine / "calls").exists()


@pytest.mark.parametrize("program", ["java", "mvn"])
def test_a_missing_program_is_named(machine: Path, program: str) -> None:
    (machine / "bin" / program).unlink()
    with pytest.raises(NoKafka, match=f"needs {program} on the PATH, or KAFKA_HOME"):
        kafka_home()
    with pytest.raises(Unavailable, match=f"needs {program} on the PATH"):
        fetched_kafka()


def test_a_maven_that_fails_leaves_nothing_behind(machine: Path) -> None:
    write_maven(machine, "#!/bin/sh\n/bin/mkdir libs\necho no such release\nexit 1\n")
    with pytest.raises(NoKafka, match=r"Maven has no jars of Kafka .*no such release"):
        kafka_home()
    assert list((machine / "quorate").iterdir()) == []


def test_whoever_comes_second_takes_what_the_first_has_fetched(machine: Path) -> None:
    home = kafka_home()
    other = home.rename(machine / "other")
    write_maven(machine, f"{MAVEN}/bin/mv {other} {home}\n")
    assert kafka_home() == home
    shutil.rmtree(home)
