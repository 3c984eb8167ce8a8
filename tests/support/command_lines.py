"""Command lines of ``quorate`` as files of ``deploy/`` have them: parsed, but not run."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from quorate.cli.main import cli


def parsed(words: Sequence[str]) -> click.Context:
    """Return the context of a command line without the program; fail if click does not understand
    it."""
    command: click.Command = cli
    context, rest = click.Context(cli), list(words)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        context, command = click.Context(found, parent=context, info_name=name), found
    return command.make_context(context.info_name, rest, parent=context.parent)


def settings_of(context: click.Context) -> dict[str, str]:
    """Return what ``--set`` gives, with compose's own variables at their defaults."""
    pairs = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", each) for each in context.params["settings"]]
    return dict(pair.split("=", 1) for pair in pairs)


def words_of_script(
    command: Sequence[str], variables: Mapping[str, str], folder: Path
) -> list[str]:
    """Run a shell's command and return the words that it gives to ``quorate``, for which a program
    stands that writes them down."""
    program = folder / "quorate"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    path = f"{folder}:{os.defpath}"
    shown = subprocess.run(
        command, env={**variables, "PATH": path}, capture_output=True, text=True, check=True
    )
    return shown.stdout.splitlines()
