"""docs/CLI.md: every command with its options, as ``--help`` shows them."""

import inspect
from collections.abc import Iterator

import click

from quorate.cli import profiles
from quorate.cli.main import COMMANDS, cli
from tests.support.reference.markdown import cell, row

_HEAD = """# Command line reference

This page is written from the commands themselves (`python -m tests.support.reference`); a test
fails while it is not what they say.

Exit codes: 0 success, 1 refused or failed, with one line on standard error, 2 wrong usage, 130
Ctrl-C, 141 the reader of the output went away. `quorate status --check` has [its
own](#quorate-status). `quorate completion bash` (or `zsh`, or `fish`) prints the code that
completes commands and options.

## Which cluster

Options name the cluster: `--bootstrap-server`, or `--data` for a local one. Without them,
commands ask `--profile`, then variables, then the profile of `QUORATE_PROFILE` or of the
configuration file, and at last `./quorate-data`.

| variable | |
|---|---|
| `QUORATE_BOOTSTRAP_SERVER` | as `--bootstrap-server` |
| `QUORATE_DATA` | as `--data` |
| `QUORATE_GRPC_SERVER` | as `--grpc-server` |
| `QUORATE_BOOTSTRAP_CONTROLLER` | as `--bootstrap-controller` |
| `QUORATE_COMMAND_CONFIG` | as `--command-config` |
| `QUORATE_PROFILE` | as `--profile` |
| `QUORATE_CONFIG` | the file of profiles |

The file of profiles is `~/.config/quorate/config.toml`:

```toml
PROFILES```

Paths are relative to the folder of the file. The `command-config` of a profile is used for the
addresses of that profile alone.
"""
_SHARED = (
    "--bootstrap-server",
    "--data",
    "--command-config",
    "--profile",
    "--grpc-server",
    "--json",
)


def cli_page() -> str:
    """Return the page."""
    example = inspect.cleandoc(
        "\n".join(
            line
            for line in (profiles.__doc__ or "").splitlines()
            if line.startswith("    ") or not line
        )
    ).strip()
    parts = [_HEAD.replace("PROFILES", f"{example}\n")]
    parts += ["\n".join(_command((name,), _loaded(name), click.Context(cli))) for name in COMMANDS]
    return "\n".join(parts)


def _loaded(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def _command(
    words: tuple[str, ...], command: click.Command, parent: click.Context
) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=words[-1])
    title = " ".join(("quorate", *words))
    yield f"{'#' * (len(words) + 1)} {title}\n"
    text, _, example = inspect.cleandoc(command.help or "").partition("\b\nExample")
    for paragraph in text.strip().split("\n\n"):
        yield f"{cell(paragraph)}\n"
    yield f"```sh\n{inspect.cleandoc(example.partition(chr(10))[2])}\n```\n"
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    own = [one for one in options if not set(one.opts) & set(_SHARED)]
    if own:
        yield row(("option", "")) + "\n" + row(("---", "---"))
        yield "\n".join(_option(one, context) for one in own) + "\n"
    shared = [f"`{one.opts[0]}`" for one in options if one not in own]
    if shared:
        yield f"Also {', '.join(shared)}.\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            if not child.hidden:
                yield from _command((*words, name), child, context)


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    names, text = record
    return row((f"`{names.replace('|', chr(92) + '|')}`", cell(text)))
