"""``docs/DEPLOY.md`` as something to follow: its named steps, and the files it shows.

A fenced block whose info string says ``step=NAME`` holds commands that a test runs; one that says
``file=NAME`` shows a file that must be what ``deploy/`` makes: they cannot drift apart.
"""

import re
import shlex
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GUIDE: Final = ROOT / "docs" / "DEPLOY.md"
DEPLOY: Final = ROOT / "deploy"

_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


def step(name: str) -> str:
    """The commands of the one step of that name."""
    return _named("step", name)


def shown_file(name: str) -> str:
    """The content of a file as the guide shows it."""
    return _named("file", name)


def commands() -> list[list[str]]:
    """Every ``quorate …`` command line of the guide, in words; those in running text too."""
    text = GUIDE.read_text(encoding="utf-8")
    lines = [
        line.strip()
        for block in _BLOCK.finditer(text)
        if block["language"] == "sh"
        for line in block["body"].replace("\\\n", " ").splitlines()
    ]
    inline = re.findall(r"`(quorate [^`]+)`", re.sub(r"\s+", " ", text))
    found = [*(line for line in lines if line.startswith("quorate ")), *inline]
    return [shlex.split(line.partition(" > ")[0], comments=True)[1:] for line in found]


def unit_command(unit: str, instance: int) -> list[str]:
    """``ExecStart`` of a unit in ``deploy/systemd``, for one instance."""
    text = (DEPLOY / "systemd" / f"{unit}@.service").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    return shlex.split(str(line).replace("%i", str(instance)))


def rendered(template: str, instance: int) -> str:
    """A template of ``deploy/config`` for one host."""
    text = (DEPLOY / "config" / template).read_text(encoding="utf-8")
    return text.replace("@ID@", str(instance))


def rendered_of_host(host: int, number: int) -> str:
    """The configuration of one of several brokers of a host."""
    text = (DEPLOY / "config" / "broker-of-host.toml.in").read_text(encoding="utf-8")
    return text.replace("@HOST@", str(host)).replace("@NUMBER@", str(number))


def _named(kind: str, name: str) -> str:
    text = GUIDE.read_text(encoding="utf-8")
    bodies = [
        block["body"]
        for block in _BLOCK.finditer(text)
        if f"{kind}={name}" in block["info"].split()
    ]
    assert len(bodies) == 1, f"docs/DEPLOY.md has {len(bodies)} blocks {kind}={name}"
    return bodies[0]
