"""The printer of the command line. Every command prints by it alone (``tests/structure``).

Names and messages come from clients of the cluster, so control characters in them are escaped.
"""

import sys
from typing import Any

import click

from quorate.common.escaping import escaped, escaped_lines, json_text


def echo(line: str = "", *, err: bool = False) -> None:
    """Print one line. A line end in it is escaped: a name cannot begin a line of its own."""
    click.echo("\t".join(map(escaped, line.split("\t"))), err=err)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Print lines whose ends are our own: a table, or text that holds nobody's names."""
    click.echo(escaped_lines(text), err=err)


def echo_json(value: Any, *, indent: int | None = None) -> None:  # noqa: ANN401 - whatever JSON holds
    """Print a value as JSON, which has escapes of its own."""
    click.echo(json_text(value, indent))


def echo_over(line: str) -> None:
    """Write over the last line that was written so, on a terminal; anywhere else write nothing."""
    if sys.stderr.isatty():
        click.echo(f"\r{escaped(line)}\x1b[K", err=True, nl=False)


def echo_prompt(prompt: str) -> None:
    """Write a prompt, after which a person types."""
    click.echo(prompt, err=True, nl=False)
