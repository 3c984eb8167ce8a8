"""The image: what its file says, without building it; and built, where a program can build it."""

import re
import shlex
import shutil
import subprocess
import tomllib
from typing import Any, Final

import pytest
import yaml

from quorate.common.configuration import parse_endpoint, read_toml
from tests.support import guide
from tests.support.command_lines import parsed

FOLDER: Final = guide.DEPLOY / "container"
FILE: Final = FOLDER / "Containerfile"
BUILDERS: Final = [one for one in ("docker", "podman", "buildah") if shutil.which(one)]


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the file with its arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    found = [line.partition(" ") for line in lines if line]
    return [(name, arguments) for name, _, arguments in found]


def last(name: str) -> str:
    return [arguments for found, arguments in instructions() if found == name][-1]


def environment() -> dict[str, str]:
    pairs = (word for name, words in instructions() if name == "ENV" for word in words.split())
    return dict(pair.split("=", 1) for pair in pairs)


def test_every_instruction_is_one_that_builders_know() -> None:
    known = {
        *("FROM", "COPY", "RUN", "ENV", "USER", "VOLUME"),
        *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    assert {name for name, _ in instructions()} == known


def test_the_image_is_slim_and_made_in_two_stages_of_one_python() -> None:
    bases = [words.split()[0] for name, words in instructions() if name == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.1[123]-slim", bases[0])


def test_the_user_is_a_number_and_not_root() -> None:
    user, group = last("USER").split(":")
    assert int(user) > 0
    made = last("RUN")
    assert f"useradd --uid {user} --gid {group}" in made
    assert "/var/lib/quorate" in made


def test_the_health_check_asks_a_broker_as_the_templates_configure_it() -> None:
    program, *words = shlex.split(last("HEALTHCHECK").partition(" CMD ")[2])
    assert program == "quorate"
    variables = {f"${name}": value for name, value in environment().items()}
    context = parsed([variables.get(word, word) for word in words])
    assert context.info_name == "ready"
    asked = parse_endpoint("ready", context.params["metrics_listener"])
    for folder in ("compose", "kubernetes"):
        configured = str(read_toml(guide.DEPLOY / folder / "broker.toml")["metrics.listener"])
        assert asked.port == parse_endpoint("metrics.listener", configured).port


def test_the_image_holds_all_that_the_wheel_is_built_from() -> None:
    project: dict[str, Any] = tomllib.loads((guide.ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    wanted = {each.partition("/")[0] for each in packages}
    kept = (FOLDER / "Containerfile.dockerignore").read_text()
    assert wanted <= {line[1:] for line in kept.splitlines() if line.startswith("!")}


def test_compose_builds_this_image() -> None:
    compose = yaml.safe_load((guide.DEPLOY / "compose" / "compose.yaml").read_text())
    build = compose["x-node"]["build"]
    context = (guide.DEPLOY / "compose" / build["context"]).resolve()
    assert context == guide.ROOT
    assert context / build["dockerfile"] == FILE


@pytest.mark.slow
@pytest.mark.skipif(not BUILDERS, reason="neither docker nor podman nor buildah is here")
def test_the_image_is_built_and_runs() -> None:
    builder = BUILDERS[0]
    tag = "quorate:of-a-test"
    built = [builder, "build", "--file", str(FILE), "--tag", tag, str(guide.ROOT)]
    subprocess.run(built, check=True, capture_output=True)
    shown = subprocess.run(
        [builder, "run", "--rm", tag, "--version"], check=True, capture_output=True, text=True
    )
    assert "quorate, version" in shown.stdout
