"""``docs/TABLES.md``: its commands parse, and its tables have every key as it is declared."""

import re
import shlex
from pathlib import Path

import click
import pytest

from quorate.cli.main import cli
from quorate.common.table_keys import TABLE_KEYS
from quorate.tables.service import service_config
from quorate.tables.service.table_metrics import (
    COMMITS,
    FAILED,
    FILES,
    LAG_OFFSETS,
    LAG_SECONDS,
    ROWS,
)

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "TABLES.md").read_text(encoding="utf-8")
COMMANDS = [
    line.rpartition(" | ")[2]
    for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    for line in block.splitlines()
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 12
    assert all(command.startswith("quorate ") for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_parses(command: str) -> None:
    arguments = shlex.split(command)[1:]
    found: click.Command = cli
    context = click.Context(cli)
    while isinstance(found, click.Group):
        name, *arguments = arguments
        inner = found.get_command(context, name)
        assert inner is not None, f"there is no command {name}"
        found = inner
    found.make_context(found.name, arguments, parent=context)


@pytest.mark.parametrize(
    "key",
    [
        *TABLE_KEYS,
        service_config.WAREHOUSE,
        service_config.SERVICE_ID,
        service_config.LOOK_INTERVAL_MS,
        service_config.LEASE_MS,
        service_config.THREADS,
        service_config.MASTER,
    ],
    ids=lambda key: key.name,
)
def test_each_key_is_told(key: object) -> None:
    name, default, doc = (getattr(key, field) for field in ("name", "default", "doc"))
    shown = "none" if default == "" else f"`{str(default).lower()}`"
    assert f"| `{name}` | {shown} | {doc} |" in GUIDE


@pytest.mark.parametrize("family", [LAG_OFFSETS, LAG_SECONDS, ROWS, COMMITS, FILES, FAILED])
def test_each_figure_is_told(family: object) -> None:
    name, kind, doc = (getattr(family, field) for field in ("name", "kind", "doc"))
    metrics = (DOCS / "METRICS.md").read_text(encoding="utf-8")
    assert f"| `{name}{{topic}}` | {kind} | {doc} |" in metrics
