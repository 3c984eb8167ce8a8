"""``quorate completion``: prints the code that completes commands and options in a shell."""

import click

from quorate.cli.output import echo_lines

PROGRAM = "quorate"
VARIABLE = "_QUORATE_COMPLETE"
"""The variable by which the shell asks ``quorate`` for completions."""


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the code that completes commands and options, for the start-up file of a shell.

    \b
    Example:
      quorate completion bash > ~/.local/share/bash-completion/completions/quorate
      quorate completion zsh > "${fpath[1]}/_quorate"
      quorate completion fish > ~/.config/fish/completions/quorate.fish
    """
    from click.shell_completion import get_completion_class

    from quorate.cli.main import cli

    known = get_completion_class(shell)
    assert known is not None
    # Not source(), which runs bash to look at its version.
    maker = known(cli, {}, PROGRAM, VARIABLE)
    echo_lines(maker.source_template % maker.source_vars())
