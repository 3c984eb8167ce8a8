"""Suggests the command that was probably meant, at every level of commands."""

from difflib import get_close_matches

import click


def suggest(error: click.ClickException) -> None:
    """Add the nearest names to the message about a command that does not exist."""
    context = getattr(error, "ctx", None)
    if context is None or not error.message.startswith("No such command"):
        return
    if "Did you mean" in error.message or not isinstance(context.command, click.Group):
        return
    wanted = error.message.partition("'")[2].rpartition("'")[0]
    near = get_close_matches(wanted, context.command.list_commands(context), 3)
    if near:
        names = " or ".join(repr(name) for name in near)
        # Click reads the message when it shows the error.
        error.message = f"{error.message} Did you mean {names}?"  # type: ignore[misc]
